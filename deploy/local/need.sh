#!/bin/sh
# need.sh python|compiler|java|maven ...: says what is missing and how to install it, all of it at once.
# Called by the Makefile before a set-up step begins, so that nothing fails half-way.
set -u
missing=0

lacks() { # what, Debian, macOS
    missing=1
    echo "missing: $1" >&2
    echo "  Debian, Ubuntu: apt-get install $2" >&2
    echo "  macOS:          brew install $3" >&2
}

need_python() {
    python=${PYTHON:-python3}
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        lacks "Python 3.11 or newer ('$python' is $("$python" --version 2>/dev/null || echo "not there")); \
another one is taken by make PYTHON=python3.12" "python3 python3-venv" "python"
    elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        lacks "Python's venv module" "python3-venv" "python"
    fi
}

# some loops are compiled: see services/extractor/setup.py
need_compiler() {
    command -v "${CC:-cc}" >/dev/null 2>&1 || lacks "a C compiler ('${CC:-cc}', or CC)" "gcc libc6-dev" "gcc"
    "${PYTHON:-python3}" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null ||
        lacks "Python's headers (Python.h)" "python3-dev" "python"
}

need_java() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    # "17.0.15" is 17, "1.8.0_392" is 8
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1)
    if [ "${version:-0}" -lt 17 ]; then
        lacks "Java 17 or newer ('$java' is ${version:-not there}); JAVA_HOME or PATH tells which is used" \
            "default-jre-headless" "openjdk"
    fi
}

need_maven() {
    command -v mvn >/dev/null 2>&1 || lacks "Maven (mvn), which fetches the jars" "maven" "maven"
}

for tool in "$@"; do
    "need_$tool"
done
exit $missing
