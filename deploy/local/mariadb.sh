#!/bin/sh
# MariaDB's server out of Debian's packages, unpacked into .jars/mariadb, with the libraries that a bare machine lacks
# (libaio is MySQL's, too). Nothing is installed, no service is started. Where there is no apt, tests of them skip.
set -eu
target=.jars/mariadb
[ ! -e "$target/usr/sbin/mariadbd" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    echo "setup: no apt here, so no MariaDB for the tests"
    exit 0
fi
libaio=libaio1
! apt-cache show libaio1t64 >/dev/null 2>&1 || libaio=libaio1t64
part=$PWD/$target.part
rm -rf "$part"
mkdir -p "$part/debs"
echo "setup: fetching MariaDB's packages into $target (once)"
if ! (cd "$part/debs" && apt-get download -q mariadb-server-core "$libaio" liburing2 libnuma1 >../log 2>&1); then
    # the lists of packages may be missing or old; only root can mend that
    if [ "$(id -u)" != 0 ] || ! apt-get update -qq ||
        ! (cd "$part/debs" && apt-get download -q mariadb-server-core "$libaio" liburing2 libnuma1 >../log 2>&1); then
        echo "setup: MariaDB's packages cannot be had, so its tests skip: $(tail -n 1 "$part/log")"
        rm -rf "$part"
        exit 0
    fi
fi
for package in "$part"/debs/*.deb; do
    dpkg-deb -x "$package" "$part/root"
done
rm -rf "$target"
mv "$part/root" "$target"
rm -rf "$part"
