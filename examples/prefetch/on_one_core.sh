#!/bin/sh
# Runs a command on one of the cores that it may use.
core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
exec taskset -c "$core" "$@"
