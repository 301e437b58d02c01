# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# A server whose workers have another user than their master, and are replaced when it reads its
# settings again.

packages=(nginx-light curl)

prepare() {
  local i
  chmod a+x .. .
  mkdir www
  seq 60000 >www/numbers.txt
  for i in {1..20}; do echo "page $i" >"www/$i.html"; done
  cat >nginx.conf <<END
user www-data;
worker_processes 2;
daemon off;
pid $PWD/nginx.pid;
error_log $PWD/error.log;
events { worker_connections 64; }
http {
  access_log off;
  gzip on;
  gzip_types text/plain;
  include /etc/nginx/mime.types;
  client_body_temp_path $PWD/client; proxy_temp_path $PWD/proxy; fastcgi_temp_path $PWD/fastcgi; uwsgi_temp_path $PWD/uwsgi;
  scgi_temp_path $PWD/scgi;
  server {
    listen unix:$PWD/socket;
    root $PWD/www;
    location /again/ { proxy_pass http://unix:$PWD/socket:/; }
  }
}
END
}

run() {
  local i
  rm -f socket
  started nginx -c "$PWD/nginx.conf"
  for _ in {1..100}; do fetch / --output /dev/null && break; sleep 0.1; done
  some_pages
  for i in 1 2; do
    kill -HUP "$server_pid"
    sleep 0.3
    some_pages
  done
  kill -QUIT "$server_pid"
  gone
}

fetch() { curl --silent --unix-socket socket --compressed "http://localhost$1" "${@:2}"; }

some_pages() {
  local i
  for ((i = 0; i < 5 * scale; i++)); do
    fetch /again/numbers.txt
    fetch "/again/$((i % 20 + 1)).html"
    fetch /missing
  done | cksum
}
