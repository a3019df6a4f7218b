#!/bin/sh
# An executor in a dozen lines of POSIX shell: it greets whatever it is asked to, and knows no other handler.
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"job_id": *"\([^"]*\)","function_name".*/\1/')
    name=$(printf '%s' "$line" | sed 's/.*"function_name": *"\([^"]*\)".*/\1/')
    echo "asked for $name" >&2
    if [ "$name" = greet ]; then
        printf '{"job_id":"%s","status":"success","result":"hello from pid %s"}\n' "$id" "$$"
    else
        printf '{"job_id":"%s","status":"error","error_type":"handler_not_found"}\n' "$id"
    fi
done
