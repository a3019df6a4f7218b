#!/bin/sh
# backup.sh FOLDER: the database and the artifacts of Ergon, as of now, into a new folder. Nothing has to stop.
# Needs pg_dump, as new as the server; DATABASE_URL, with the server's own address, not a pooler's; and ERGON_DATA_DIR.
set -eu
umask 077
mkdir "$1"
pg_dump --format=custom --file="$1/ergon.dump" "$DATABASE_URL"
# After the database: the files of its artifacts stay, and newer ones do no harm. With ERGON_S3 there are none here.
if [ -d "$ERGON_DATA_DIR/artifacts" ]; then
    tar --create --file="$1/artifacts.tar" --directory="$ERGON_DATA_DIR" artifacts
fi
