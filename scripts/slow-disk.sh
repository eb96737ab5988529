#!/bin/sh
# An emulated slow disk that the kernel throttles, the same for every program. Needs root and Linux.
#
#   scripts/slow-disk.sh up DIR SIZE_MB READ_IOPS BYTES_PER_S   mount a throttled disk at DIR
#   scripts/slow-disk.sh run DIR COMMAND...                     run a command that feels the throttle
#   scripts/slow-disk.sh down DIR                               unmount it and remove its file
#
# The disk is a loop device with direct I/O over the file DIR.img. Limits belong to a control group, not to the device:
# only what `run` starts is slowed down. Version 2 (io.max) and version 1 (blkio) are both understood.
# Writes that go through the page cache are charged to the group by version 2 alone; use direct I/O.
set -eu

usage() {
    sed -n '4,6s/^# *//p' "$0" >&2
    exit 2
}

[ $# -ge 2 ] || usage
verb=$1
dir=$2
shift 2
image=$dir.img
group_name=kelvin-$(printf '%s' "$dir" | tr -c 'A-Za-z0-9' '-')

group() {
    if [ -f /sys/fs/cgroup/cgroup.controllers ] && grep -qw io /sys/fs/cgroup/cgroup.controllers; then
        echo "/sys/fs/cgroup/$group_name"
    elif [ -f /sys/fs/cgroup/blkio/cgroup.procs ]; then
        echo "/sys/fs/cgroup/blkio/$group_name"
    else
        echo "slow-disk: no control group for block devices here (neither io.max nor blkio)" >&2
        exit 1
    fi
}

limit() { # file line: says which limit the kernel refused
    if ! echo "$2" >"$1"; then
        echo "slow-disk: the kernel refused '$2' in $1" >&2
        exit 1
    fi
}

up() {
    [ $# -eq 3 ] || usage
    where=$(group)
    mkdir -p "$dir"
    if [ -e "$image" ]; then
        echo "slow-disk: $image is there already; run 'down' first" >&2
        exit 1
    fi
    fallocate -l "$1M" "$image"
    device=$(losetup --find --show --direct-io=on "$image")
    mkfs.ext4 -q -E nodiscard "$device"
    mount "$device" "$dir"
    number=$(lsblk -dno MAJ:MIN "$device" | tr -d ' ')
    mkdir -p "$where"
    if [ -f "$where/blkio.throttle.read_iops_device" ]; then
        limit "$where/blkio.throttle.read_iops_device" "$number $2"
        limit "$where/blkio.throttle.read_bps_device" "$number $3"
        limit "$where/blkio.throttle.write_bps_device" "$number $3"
    else
        echo +io >/sys/fs/cgroup/cgroup.subtree_control
        limit "$where/io.max" "$number riops=$2 rbps=$3 wbps=$3"
    fi
    echo "slow-disk: $device at $dir, $2 reads/s, $3 bytes/s for what 'run' starts"
}

run() {
    [ $# -ge 1 ] || usage
    where=$(group)
    if [ ! -d "$where" ]; then
        echo "slow-disk: $dir is not up" >&2
        exit 1
    fi
    # The shell moves itself and becomes the command.
    echo $$ >"$where/cgroup.procs"
    exec "$@"
}

down() {
    device=$(losetup --noheadings --output NAME --associated "$image")
    umount "$dir"
    [ -z "$device" ] || losetup --detach "$device"
    rm "$image"
    where=$(group)
    [ ! -d "$where" ] || rmdir "$where"
}

case $verb in
up) up "$@" ;;
run) run "$@" ;;
down) down ;;
*) usage ;;
esac
