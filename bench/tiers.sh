#!/bin/sh
# Two disks on one machine, a fast one and a slow one that the kernel throttles, the same for every program. Needs root and Linux.
#
#   bench/tiers.sh up DIR [--slow PROFILE] [--slow-size MB] [--fast PROFILE] [--fast-size MB]
#                                        mount a fast disk at DIR/fast and a slow one at DIR/slow
#   bench/tiers.sh run DIR COMMAND...    run a command that feels the throttle
#   bench/tiers.sh verify DIR KELVIN     measure both disks with `KELVIN bench device`, and fail if one is not what it is to be
#   bench/tiers.sh down DIR              unmount both, and remove their files
#   bench/tiers.sh profiles              list the profiles
#
# Each disk is a loop device with direct I/O over a file in DIR, in a file system mounted without `discard`. Limits belong to a
# control group, not to the device: only what `run` starts is slowed down. Version 2 (io.max) and version 1 (blkio) are both
# understood. Writes that go through the page cache are charged to the group by version 2 alone; use direct I/O. Latency needs
# the kernel's dm-delay. What `up` has made when it fails is removed again.
set -eu

# name, reads a second, bytes a second, milliseconds added to each read
profiles() {
    cat <<'EOF'
none      0      0           0   as fast as the file's own disk
gp3       10000  1048576000  0   the paper's cloud volume (its table 1), and the best arrays of hard disks
gp3-100   1000   100000000   0   that volume for a hundredth of the data, as the reference figures were measured
gp3-base  3000   125000000   0   a cloud volume of this kind as it is sold without extras
hdd       400    260000000   0   a hard disk (the paper's table 6)
hdd-array 4000   1000000000  0   ten of them
s3        5500   100000000   20  an object store near by: 20 ms for the first byte
EOF
}

usage() {
    sed -n '4,9s/^# *//p' "$0" >&2
    exit 2
}

die() {
    echo "tiers: $*" >&2
    exit 1
}

[ $# -ge 1 ] || usage
verb=$1
shift
if [ "$verb" = profiles ]; then
    profiles
    exit
fi
[ $# -ge 1 ] || usage
dir=$1
shift
group_name=kelvin-$(printf '%s' "$dir" | tr -c 'A-Za-z0-9' '-')

need_root() {
    [ "$(id -u)" = 0 ] || die "needs root: it mounts file systems and limits disks"
}

# The control group of the disks of DIR.
group() {
    if [ -f /sys/fs/cgroup/cgroup.controllers ] && grep -qw io /sys/fs/cgroup/cgroup.controllers; then
        echo "/sys/fs/cgroup/$group_name"
    elif [ -f /sys/fs/cgroup/blkio/cgroup.procs ]; then
        echo "/sys/fs/cgroup/blkio/$group_name"
    else
        die "no control group for block devices here (neither io.max nor blkio)"
    fi
}

limit() { # file line: says which limit the kernel refused
    echo "$2" 2>/dev/null >"$1" || die "the kernel refused '$2' in $1"
}

# profile field: 2 reads a second, 3 bytes a second, 4 milliseconds
figure() {
    profiles | awk -v name="$1" -v field="$2" '$1 == name { print $field; found = 1 } END { exit !found }' ||
        die "no profile is called '$1'; 'tiers.sh profiles' lists them"
}

# Mounts a disk of a profile at DIR/NAME.
mount_disk() { # name profile megabytes
    name=$1
    reads=$(figure "$2" 2)
    bytes=$(figure "$2" 3)
    delay=$(figure "$2" 4)
    fallocate -l "$3M" "$dir/$name.img" || die "$dir has no room for a disk of $3 MB; say --$name-size"
    device=$(losetup --find --show --direct-io=on "$dir/$name.img")
    if [ "$delay" != 0 ]; then
        command -v dmsetup >/dev/null && dmsetup targets 2>/dev/null | grep -q '^delay' ||
            die "profile '$2' needs the kernel's dm-delay, which is not here; 'kelvin bench --slow-latency' emulates latency anywhere"
        sectors=$(blockdev --getsz "$device")
        dmsetup create "$group_name-$name" --table "0 $sectors delay $device 0 $delay $device 0 0"
        device=/dev/mapper/$group_name-$name
    fi
    mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$device"
    mkdir -p "$dir/$name"
    mount -o nodiscard "$device" "$dir/$name"
    echo "$2" >"$dir/$name.profile"
    if [ "$reads" != 0 ]; then
        number=$(lsblk -dno MAJ:MIN "$device" | tr -d ' ')
        if [ -f "$where/blkio.throttle.read_iops_device" ]; then
            limit "$where/blkio.throttle.read_iops_device" "$number $reads"
            limit "$where/blkio.throttle.read_bps_device" "$number $bytes"
            limit "$where/blkio.throttle.write_bps_device" "$number $bytes"
        else
            limit "$where/io.max" "$number riops=$reads rbps=$bytes wbps=$bytes"
        fi
    fi
    echo "tiers: $dir/$name on $device, profile $2"
}

up() {
    fast=none slow=gp3-100 fast_size=2048 slow_size=4096
    while [ $# -ge 2 ]; do
        case $1 in
        --fast) fast=$2 ;;
        --slow) slow=$2 ;;
        --fast-size) fast_size=$2 ;;
        --slow-size) slow_size=$2 ;;
        *) usage ;;
        esac
        shift 2
    done
    [ $# -eq 0 ] || usage
    need_root
    figure "$fast" 1 >/dev/null
    figure "$slow" 1 >/dev/null
    where=$(group)
    for name in fast slow; do
        [ ! -e "$dir/$name.img" ] || die "$dir/$name.img is there already; run 'down' first"
    done
    trap 'status=$?; [ $status = 0 ] || take_down; exit $status' EXIT
    trap 'exit 130' INT TERM HUP
    mkdir -p "$dir" "$where"
    [ ! -f /sys/fs/cgroup/cgroup.subtree_control ] || limit /sys/fs/cgroup/cgroup.subtree_control +io
    mount_disk fast "$fast" "$fast_size"
    mount_disk slow "$slow" "$slow_size"
}

run() {
    [ $# -ge 1 ] || usage
    where=$(group)
    [ -d "$where" ] || die "$dir is not up"
    # The shell moves itself and becomes the command.
    limit "$where/cgroup.procs" $$
    exec "$@"
}

verify() {
    [ $# -eq 1 ] || usage
    kelvin=$1
    for name in fast slow; do
        profile=$(cat "$dir/$name.profile") || die "$dir is not up"
        set -- --dir "$dir/$name"
        # With latency too few requests are under way to reach the other limits.
        if [ "$(figure "$profile" 2)" != 0 ] && [ "$(figure "$profile" 4)" = 0 ]; then
            set -- "$@" --expect-reads "$(figure "$profile" 2)" --expect-bandwidth "$(figure "$profile" 3)"
        fi
        sh "$0" run "$dir" "$kelvin" bench device "$@"
    done
}

# Removes what is there of it, whatever is missing.
take_down() {
    for name in fast slow; do
        image=$dir/$name.img
        if mountpoint -q "$dir/$name"; then
            umount "$dir/$name" || die "$dir/$name is in use"
        fi
        [ ! -e "/dev/mapper/$group_name-$name" ] || dmsetup remove "$group_name-$name"
        if [ -e "$image" ]; then
            losetup --noheadings --output NAME --associated "$image" | while read -r device; do
                losetup --detach "$device"
            done
        fi
        rm -f "$image" "$dir/$name.profile"
        [ ! -d "$dir/$name" ] || rmdir "$dir/$name"
    done
    where=$(group)
    [ ! -d "$where" ] || rmdir "$where"
}

down() {
    need_root
    [ -e "$dir/fast.img" ] || [ -e "$dir/slow.img" ] || die "$dir is not up"
    take_down
}

case $verb in
up | run | verify | down) "$verb" "$@" ;;
*) usage ;;
esac
