#!/bin/bash
# Builds the image and runs it without a registry of images and without a container engine.
#
#     sudo tools/check_image.sh        # or: make test-image
#
# debootstrap creates the base image, a Debian with its python3. podman builds the Dockerfile in a
# chroot. The entrypoint then runs as user 1000 in a chroot of the image whose root is read-only, in
# namespaces of its own. The README's request and the health check must succeed there. Needs root
# and Debian's packages debootstrap, podman, buildah and curl.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
podman=(podman --root "$work/root" --runroot "$work/run" --storage-driver=overlay)
cleanup() {
  # Kill the first process of the namespace, whose end ends all others there: the change of the user
  # has undone --kill-child.
  [ -z "${server:-}" ] || pkill -KILL --parent "$(pgrep --parent "$server")" || true
  wait || true
  "${podman[@]}" image unmount --all >/dev/null || true
  "${podman[@]}" rmi --all --force >/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

packages=python3,python3-venv,python3-pip,ca-certificates
debootstrap --variant=minbase --include="$packages" bookworm "$work/base" >/dev/null
tar -C "$work/base" -cf "$work/base.tar" .
"${podman[@]}" import --quiet "$work/base.tar" localhost/python

# pip in the build takes the settings of this machine.
volumes=(--volume /etc/ssl/certs:/etc/ssl/certs:ro)
[ ! -e /etc/pip.conf ] || volumes+=(--volume /etc/pip.conf:/etc/pip.conf:ro)
"${podman[@]}" build --quiet --format docker --isolation chroot --network host "${volumes[@]}" \
  --build-arg PYTHON_IMAGE=localhost/python --tag tpuserve .

image() { "${podman[@]}" image inspect --format "$1" tpuserve; }
[ "$(image '{{.Config.User}}')" = 1000:1000 ]
mapfile -t environment < <(image '{{range .Config.Env}}{{println .}}{{end}}' | sed '/^$/d')
root=$("${podman[@]}" image mount tpuserve)

# Runs a command in the image as its user. The image's root is mounted read-only.
in_image() {
  unshare --mount --pid --fork --kill-child -- /bin/sh -ec '
    root=$1; shift
    mount --bind "$root" "$root"
    mount --options remount,bind,ro "$root"
    mount --types proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --types tmpfs --options mode=1777 tmpfs "$root/tmp"
    exec chroot --userspec=1000:1000 "$root" /usr/bin/env -i "$@"
  ' sh "$root" "${environment[@]}" "$@"
}

if in_image touch /written 2>/dev/null; then
  echo "the root of the image is not read-only" >&2
  exit 1
fi
if in_image healthcheck.py 2>/dev/null; then
  echo "the health check succeeds without a server; is port 8501 in use?" >&2
  exit 1
fi
in_image entrypoint.sh >"$work/log" 2>&1 &
server=$!
for _ in $(seq 300); do
  in_image healthcheck.py 2>/dev/null && break
  kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
  sleep 1
done
in_image healthcheck.py
picture=$(sed -n "/^curl/,/:predict$/p" "$work/log")
answer=$(bash -c "$picture" 2>/dev/null)
echo "$answer"
grep -q '"digit": 3' <<<"$answer"
du --summarize --human-readable --apparent-size "$root/opt/tpuserve" | sed 's/\t.*/ in the environment of the image/'
