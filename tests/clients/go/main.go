// The go-amqp column of the clients' matrix; ../README.md says what each command does.
//
// This file knows the command line and the printing of lines, nothing of AMQP.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
)

const usage = `usage: client features PREFIX NAME…
       client send-types ADDRESS FILE
       client receive-types ADDRESS COUNT
       client soak PREFIX SECONDS SEED
       client transfer URLS ADDRESS COUNT
       client login MECHANISM [ADDRESS]`

var lines = json.NewEncoder(os.Stdout)

func init() { lines.SetEscapeHTML(false) }

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func command(args []string) error {
	switch {
	case len(args) >= 2 && args[0] == "features":
		return runFeatures(args[1], args[2:])
	case len(args) == 3 && args[0] == "send-types":
		return sendTypes(args[1], args[2])
	case len(args) == 3 && args[0] == "receive-types":
		count, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return receiveTypes(args[1], count)
	case (len(args) == 2 || len(args) == 3) && args[0] == "login":
		address := ""
		if len(args) == 3 {
			address = args[2]
		}
		return login(os.Getenv("LOGIN_USER"), os.Getenv("LOGIN_PASSWORD"), args[1], address)
	case len(args) == 4 && args[0] == "transfer":
		count, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return runTransfer(args[1], args[2], count)
	case len(args) == 4 && args[0] == "soak":
		seconds, err := strconv.ParseFloat(args[2], 64)
		if err != nil {
			return err
		}
		seed, err := strconv.ParseUint(args[3], 10, 64)
		if err != nil {
			return err
		}
		return soak(args[1], seconds, seed)
	}
	return fmt.Errorf("%s", usage)
}
