#!/bin/sh
# debian.sh bookworm mariadb-server-core libaio1: these packages of a Debian suite, with all that they need, its C library
# and loader too, unpacked into .jars/debian/<suite>. Programs out of it run on any Linux by that loader. Nothing is
# installed, and root is not needed: apt keeps lists of its own below .jars. Where there is no apt, or no mirror that has
# the suite, the tests that need these packages skip, with the reason (kept in .jars/debian/<suite>.reason).
set -eu
suite=$1
shift
target=.jars/debian/$suite
[ ! -e "$target" ] || exit 0

without() {
    echo "setup: no $* of Debian $suite, so the tests that need it skip: $reason"
    rm -rf "$part"
    mkdir -p .jars/debian
    echo "$reason" >"$target.reason"
    exit 0
}

part=$PWD/$target.part
keys=/usr/share/keyrings/debian-archive-keyring.gpg
reason="no apt here"
command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || without "$@"
reason="no $keys"
[ -e "$keys" ] || without "$@"
rm -rf "$part"
mkdir -p "$part/lists/partial" "$part/cache/archives/partial" "$part/empty" "$part/root"
: >"$part/status"
# the mirror that this machine's apt has been given, if it is one of Debian's
mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -m 1 '/debian/\{0,1\}$' || echo http://deb.debian.org/debian)
echo "deb [signed-by=$keys] $mirror $suite main" >"$part/sources.list"
apt() {
    apt-get -q -o Dir::Etc::sourcelist="$part/sources.list" -o Dir::Etc::sourceparts="$part/empty" \
        -o Dir::Etc::preferencesparts="$part/empty" -o Dir::State="$part" -o Dir::State::lists="$part/lists" \
        -o Dir::State::status="$part/status" -o Dir::Cache="$part/cache" -o Debug::NoLocking=1 \
        -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=3 "$@" >>"$part/log" 2>&1
}
echo "setup: fetching $* of Debian $suite into $target (once)"
if ! apt update || ! apt install -y --download-only --no-install-recommends "$@"; then
    reason=$(grep -m 1 '^E:' "$part/log" || tail -n 1 "$part/log")
    without "$@"
fi
for package in "$part"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$part/root"
done
# what only people read
rm -rf "$part/root/usr/share/doc" "$part/root/usr/share/man" "$part/root/usr/share/perl" "$part/root/usr/share/locale"
mv "$part/root" "$target"
rm -rf "$part" "$target.reason"
