// rhea-promise's program; the commands are ../README.md's.
'use strict';
require('../javascript/commands.js').main(require('./driver.js'));
