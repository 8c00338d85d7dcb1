#!/usr/bin/env bash
# build.sh [--local-base] [--skip] [--check] [service …]: build the images (all of them, or those named) with podman or docker.
#   --local-base  use a Debian base created by debootstrap: needs only package registries, no image registry
#   --skip        if the build is not possible, print the reason and exit with 0 (for CI)
#   --check       check the images: user, size, health check, a first run of the program
# LOWWATER_BUILD_OPTIONS are passed to `build` unchanged (--network=host, --volume=… for a proxy's certificates).
set -euo pipefail
cd "$(dirname "$0")/../.."

declare -A size_mb_max=([extractor]=250 [extractor-oracle]=300 [extractor-turso]=300 [merger]=250 [control]=1000 [spark]=1800)
declare -A kinds=([extractor-oracle]=oracle [extractor-turso]=turso)
declare -A leave_out=([extractor-oracle]="rich pygments markdown-it-py" [extractor-turso]=pyarrow)
services=()
local_base='' skip='' check=''
for argument in "$@"; do
    case $argument in
    --local-base) local_base=yes ;;
    --skip) skip=yes ;;
    --check) check=yes ;;
    *) services+=("$argument") ;;
    esac
done
((${#services[@]})) || services=(extractor extractor-oracle extractor-turso merger control spark)

cannot() { # why
    echo "images: ${skip:+skipped: }$1" >&2
    [[ -n $skip ]] && exit 0
    exit 1
}

engine=''
for candidate in podman docker; do
    if command -v $candidate >/dev/null && $candidate info >/dev/null 2>&1; then
        engine=$candidate
        break
    fi
done
[[ -n $engine ]] || cannot "neither podman nor docker runs here"

options=(--build-arg "REVISION=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)")
# docker's own format has health checks, OCI's has none
[[ $engine == podman ]] && options+=(--format docker)
if [[ -n $local_base ]]; then
    command -v debootstrap >/dev/null || cannot "debootstrap is not here (apt-get install debootstrap)"
    ((EUID == 0)) || cannot "debootstrap needs root"
    if ! $engine image inspect lowwater-base >/dev/null 2>&1; then
        root=$(mktemp -d)
        trap 'rm -rf "$root"' EXIT
        echo "images: debootstrap makes a base image (once, two minutes)"
        debootstrap --variant=minbase bookworm "$root" >"$root.log" || { tail "$root.log" >&2; exit 1; }
        # additional certificates of this machine, such as a proxy's, are trusted by the build, too
        install -d "$root/usr/local/share/ca-certificates"
        cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
        rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/doc "$root"/usr/share/man \
            "$root"/usr/share/locale "$root.log"
        tar -C "$root" -c . | $engine import - lowwater-base >/dev/null
    fi
    why=$($engine run --rm --network none lowwater-base true 2>&1) || cannot "$engine cannot run a container here: ${why##*$'\n'}"
    # packages are downloaded over the host's network, because a bridge may not exist
    options+=(--build-arg BASE=lowwater-base --network host)
fi

look() { # service
    local image=lowwater/$1:0.1.0 megabytes
    megabytes=$(($($engine image inspect --format '{{.Size}}' "$image") / 1000000))
    [[ $($engine image inspect --format '{{.Config.User}}' "$image") == 10001:10001 ]]
    [[ $($engine image inspect --format '{{index .Config.Labels "org.opencontainers.image.version"}}' "$image") == 0.1.0 ]]
    [[ $($engine image inspect --format '{{json .Config.Healthcheck}}' "$image") == *healthy.py* ]] ||
        [[ $($engine image inspect --format '{{json .HealthCheck}}' "$image") == *healthy.py* ]]
    # without a compiler, with its list of packages, on a file system that cannot be written to
    $engine run --rm --read-only --network none --entrypoint sh "$image" -c \
        '! command -v gcc && test -s /opt/lowwater/sbom.json && ! touch /opt/lowwater/x 2>/dev/null' >/dev/null
    local arguments=(--help)
    [[ $1 == spark ]] && arguments=(land --help)
    $engine run --rm --read-only --network none "$image" "${arguments[@]}" | grep -q 'usage: lowwater-'
    echo "images: $image is $megabytes MB"
    ((megabytes < size_mb_max[$1])) || { echo "images: more than ${size_mb_max[$1]} MB" >&2; exit 1; }
}

for service in "${services[@]}"; do
    echo "images: $engine builds lowwater/$service"
    chosen=()
    [[ -z ${kinds[$service]:-} ]] || \
        chosen=(--build-arg "KINDS=${kinds[$service]}" --build-arg "LEAVE_OUT=${leave_out[$service]}")
    # shellcheck disable=SC2086
    $engine build "${options[@]}" "${chosen[@]}" ${LOWWATER_BUILD_OPTIONS:-} \
        --file "deploy/images/${service%%-*}.Dockerfile" --tag "lowwater/$service:0.1.0" .
    [[ -z $check ]] || look "$service"
done
