"""Print the shell's completion of sluice: verbs, flags, their values, and the names the broker has.

bash: eval "$(sluice completion bash)", in ~/.bashrc
zsh:  eval "$(sluice completion zsh)", in ~/.zshrc after compinit
fish: sluice completion fish | source, in ~/.config/fish/config.fish

Names come from the broker that the line means (-b, else SLUICE_BROKER), where it answers within 700 ms, or
what SLUICE_COMPLETION_TIMEOUT says; without one, verbs and flags are completed all the same.
"""

from __future__ import annotations

import argparse

EXAMPLES = (
    ('eval "$(sluice completion bash)"', "bash, from now on"),
    ("sluice completion fish | source", "fish, from now on"),
)

# Every script asks `sluice completion words` with the words of the line, the last of which may be a part of
# one, and shows what it prints: a word a line, and after a tab what it is. A line `:files` means files.
BASH = r"""_sluice() {
    local line word part tail
    part=${COMP_WORDS[COMP_CWORD]}
    mapfile -t line < <(sluice completion words --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    COMPREPLY=()
    if [[ ${line[0]} == :files ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$part")
        return
    fi
    # The first line is what stands in the word before its last : or =, where bash begins another word.
    tail=${line[0]}
    for word in "${line[@]:1}"; do
        word=${word%%$'\t'*}
        word=${word#"$tail"}
        printf -v word %q "$word"
        COMPREPLY+=("$word")
    done
}
complete -F _sluice sluice
"""
ZSH = r"""#compdef sluice
_sluice() {
    local -a found shown
    local line
    for line in "${(@f)$(sluice completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ $line == :files ]] && { _files; return }
        [[ -z $line ]] && continue
        found+=("${line%%$'\t'*}")
        shown+=("${line/$'\t'/  -- }")
    done
    compadd -l -d shown -- "${found[@]}"
}
compdef _sluice sluice
"""
FISH = r"""function __sluice_complete
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    set -l found (sluice completion words -- $words 2>/dev/null)
    if test "$found[1]" = :files
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $found
    end
end
complete -c sluice -f -a '(__sluice_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments; what the scripts ask for is not told of."""
    parser.add_argument("shell", choices=(*SCRIPTS, "words"), metavar="bash|zsh|fish")
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--line", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Prints a script, or what may follow."""
    if args.shell != "words":
        print(SCRIPTS[args.shell], end="")
        return 0
    from broker.cli.terminal import candidates

    if args.line is None:
        found = candidates.of_words(args.words or [""])
    else:
        found = candidates.of_line(args.line)
    print("\n".join(found))
    return 0
