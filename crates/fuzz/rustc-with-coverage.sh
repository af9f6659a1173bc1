#!/bin/sh
# The compiler for the crates of this workspace while `make fuzz` builds: with the counters that libFuzzer steers by. They are
# a pass of LLVM, which a stable compiler has too. Crates from outside are built as ever, and shared with other builds.
rustc=$1
shift
case " $* " in
# A build script is a program of its own, without libFuzzer.
*" --crate-name build_script_build "*) exec "$rustc" "$@" ;;
*" --crate-type bin "* | *" --crate-type lib "* | *" --crate-type rlib "*)
    exec "$rustc" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=on
    ;;
*) exec "$rustc" "$@" ;;
esac
