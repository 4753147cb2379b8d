#!/usr/bin/env bash
# A copy of this machine with a systemd of its own, in namespaces: packages are installed in it, and the machine keeps
# none of it. Its files are the machine's, with an overlay in memory; its network has nothing but a loopback.
#   unshare --mount bash system.sh DIRECTORY
# Wants root and an empty DIRECTORY. Prints the id of the copy's first process, and runs until standard input ends.
set -euo pipefail
top=$1

# In the namespaces: mounts the copy and becomes its first process.
if [ "${2:-}" = inside ]; then
  mount --make-rprivate /
  mount -t tmpfs tmpfs "$top"
  mkdir "$top"/{upper,work,root}
  mount -t overlay overlay -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$top/root"
  cd "$top/root"
  mount -t proc proc proc
  mount --bind -o ro proc/sys proc/sys
  mount -t sysfs -o ro sysfs sys
  mount -t cgroup2 cgroup2 sys/fs/cgroup
  for directory in run tmp dev; do mount -t tmpfs tmpfs $directory; done
  for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
  done
  ln -s /proc/self/fd dev/fd
  mkdir dev/shm dev/pts
  mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
  ln -s pts/ptmx dev/ptmx
  # A policy of this machine forbids that packages start services, where it is an image of a container.
  rm -f usr/sbin/policy-rc.d
  # The index of manual pages takes 10 s with each package.
  rm -f var/lib/man-db/auto-update
  # Its journal begins afresh.
  rm -rf var/log/journal
  # What sets the kernel up is the machine's own.
  for unit in systemd-{sysctl,binfmt,modules-load,remount-fs,update-utmp}.service; do
    ln -sf /dev/null etc/systemd/system/$unit
  done
  ip link set lo up
  # The root of the namespace, not only of this process: services have namespaces of their own.
  pivot_root . mnt
  cd /
  umount --lazy /mnt
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test /lib/systemd/systemd --unit=basic.target
fi

# A control group of its own, which the copy's systemd takes for the root.
groups=$(mktemp -d)
mount -t cgroup2 cgroup2 "$groups"
group=$groups/tollgate-test-$$
mkdir "$group"
(
  echo $BASHPID >"$group/cgroup.procs"
  exec unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup bash "$0" "$top" inside </dev/null >&2
) &
outside=$!

clean() {
  kill -KILL "$outside" 2>/dev/null || true
  wait "$outside" 2>/dev/null || true
  # Processes of the copy are gone a moment later.
  for _ in {1..100}; do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    [ -d "$group" ] || break
    sleep 0.05
  done
  umount "$groups"
  rmdir "$groups"
}
trap clean EXIT

until first=$(pgrep -P "$outside"); do
  kill -0 "$outside"
  sleep 0.02
done
echo "$first"
cat >/dev/null
