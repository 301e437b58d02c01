# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# A hundred libraries, a million blocks; it restarts itself if its profile is fresh.

packages=(libreoffice-writer-nogui libreoffice-calc-nogui)

prepare() {
  local i
  for ((i = 1; i <= 250 * scale; i++)); do printf '<p>Paragraph %d of a long <b>text</b>.</p>\n' "$i"; done >text.html
  for ((i = 1; i <= 250 * scale; i++)); do printf '%d,%d,=A%d*B%d\n' "$i" $((i * 31 % 97)) "$i" "$i"; done >table.csv
}

run() {
  rm -rf own text.txt table.html
  profiled soffice "-env:UserInstallation=file://$PWD/own" --headless --convert-to txt:Text text.html >/dev/null && cksum <text.txt
  profiled soffice "-env:UserInstallation=file://$PWD/own" --headless --convert-to html table.csv >/dev/null && cksum <table.html
}
