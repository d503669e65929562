#!/bin/sh
# on_one_core.sh COMMAND...: runs the command on the first core that this process may use.
core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
exec taskset -c "$core" "$@"
