# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# A server that executes itself again for each connection, and whose children give up all rights
# behind a system call filter that kills.

packages=(openssh-server openssh-client python3)
ends=some # those behind the filter

prepare() {
  ssh-keygen -q -t ed25519 -N '' -f host
  ssh-keygen -q -t ed25519 -N '' -f user
  [ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
  cat >sshd.conf <<END
ListenAddress 127.0.0.1
HostKey $PWD/host
AuthorizedKeysFile $PWD/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
Subsystem sftp internal-sftp
END
  seq 200000 >numbers.txt
}

run() {
  local i
  # A free port.
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  started /usr/sbin/sshd -D -f "$PWD/sshd.conf" -p "$port" -E server.log
  for _ in {1..100}; do session true && break; sleep 0.1; done
  for ((i = 0; i < 3 * scale; i++)); do
    session "echo hello $i; exit $i"
    echo "session: $?"
  done
  session cat <numbers.txt | cksum
  rm -f copy.txt
  scp -q "${options[@]}" -P "$port" numbers.txt "$(id -un)@127.0.0.1:$PWD/copy.txt"
  cksum copy.txt
  kill -HUP "$server_pid"
  sleep 0.5
  for _ in {1..100}; do session true && break; sleep 0.1; done
  session 'echo again'
  kill -TERM "$server_pid"
  gone
}

options=(-i user -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR)

session() { ssh "${options[@]}" -p "$port" "$(id -un)@127.0.0.1" "$@"; }
