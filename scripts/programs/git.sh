# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# Commits, a pack, blame: dozens of short processes.

packages=(git)

prepare() { :; }

run() {
  local commit file
  export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org
  export GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@example.org
  rm -rf repository
  profiled git init --quiet --initial-branch=main repository
  cd repository || return
  for ((commit = 1; commit <= 2 + scale; commit++)); do
    for ((file = 1; file <= 60 * scale; file++)); do
      seq "$commit" $((file * 3 + commit)) >"file$file"
    done
    export GIT_AUTHOR_DATE="$((1700000000 + commit)) +0000" GIT_COMMITTER_DATE="$((1700000000 + commit)) +0000"
    profiled git add .
    profiled git commit --quiet --message "commit $commit"
  done
  profiled git log --stat --format='%H %s' | cksum
  profiled git gc --quiet
  profiled git fsck --full
  profiled git blame file7
  profiled git rev-parse no-such-thing 2>&1
}
