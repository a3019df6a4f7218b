#!/bin/sh
# restore.sh FOLDER: what backup.sh has written, into an empty database and data folder. No process of Ergon may run.
# Afterwards start everything: what was running when the backup was made runs again once its lease has expired.
set -eu
pg_restore --exit-on-error --no-owner --dbname="$DATABASE_URL" "$1/ergon.dump"
if [ -f "$1/artifacts.tar" ]; then
    tar --extract --file="$1/artifacts.tar" --directory="$ERGON_DATA_DIR"
fi
