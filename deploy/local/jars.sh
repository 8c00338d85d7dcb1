#!/bin/sh
# jars.sh kafka spark: the jars of these profiles of pom.xml, in .jars/<profile>. Of each profile all jars or none.
set -eu
for profile in "$@"; do
    part=.jars/$profile.part
    echo "setup: fetching the jars of $profile with Maven into .jars/$profile (once)"
    rm -rf "$part"
    mkdir -p "$part"
    if ! mvn -q -B -P "$profile" dependency:copy-dependencies -DoutputDirectory="$PWD/$part" >"$part.log" 2>&1; then
        cat "$part.log" >&2
        exit 1
    fi
    rm -rf ".jars/$profile" "$part.log"
    mv "$part" ".jars/$profile"
done
