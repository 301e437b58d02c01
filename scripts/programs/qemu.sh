# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# A machine in software: code made at run time calls C; disks are written in coroutines, on stacks
# of their own, in threads of their own.

packages=(qemu-system-x86 qemu-utils)

prepare() {
  local i
  {
    printf '{"execute":"qmp_capabilities"}\n'
    for ((i = 1; i <= 4 * scale; i++)); do
      printf '{"execute":"human-monitor-command","arguments":{"command-line":"qemu-io disk \\"%s\\""}}\n' \
        "write -P $i ${i}M 5M" "read -P $i ${i}M 1M"
    done
    printf '{"execute":"quit"}\n'
  } >commands
}

run() {
  rm -f disk.qcow2 copy.qcow2
  profiled qemu-img create -q -f qcow2 disk.qcow2 64M
  # Times of events differ in each run.
  profiled qemu-system-x86_64 -display none -machine q35,accel=tcg -m 64 -drive if=none,id=disk,file=disk.qcow2,format=qcow2 \
    -device virtio-blk-pci,drive=disk -qmp stdio <commands | grep -c '"return"'
  profiled qemu-img check disk.qcow2
  profiled qemu-img convert -c -O qcow2 disk.qcow2 copy.qcow2
  profiled qemu-img compare disk.qcow2 copy.qcow2
}
