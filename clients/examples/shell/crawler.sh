#!/usr/bin/env bash
# A whole crawler for Freshet in the shell: kcat, curl (7.75 or newer), jq, sha256sum. One page at a
# time.
#
# KAFKA_BOOTSTRAP_SERVERS says where Kafka is, FRESHET_TOPIC_PREFIX what topics begin with. Before
# you let it out, let it refuse addresses that are not public, and obey robots.txt.
set -euo pipefail
servers=${KAFKA_BOOTSTRAP_SERVERS:-127.0.0.1:9092}
prefix=${FRESHET_TOPIC_PREFIX:-}
page=$(mktemp)
heads=$(mktemp)
trap 'rm -f "$page" "$heads"; kill 0' EXIT

answer() { # the request as JSON → the outcome as JSON
    local failure status redirects there address digest=
    : >"$page" >"$heads" # the page crawled before is none of this one's
    read -r failure status redirects there address < <(curl --silent --globoff --location --max-time 60 \
        --max-filesize 10000000 --proto =http,https --output "$page" --dump-header "$heads" --write-out \
        '%{exitcode} %{http_code} %{num_redirects} %{url_effective} %{remote_ip}\n' \
        -- "$(jq -r .url <<<"$1")") || true
    [ "$redirects" = 0 ] || address= # another host may have answered
    there=${there#*://} there=${there%%[/?#]*}
    if [ "$redirects" != 0 ] && [ "${there,,}" != "$(jq -r .host <<<"$1")" ]; then
        # That it is busy or broken is nothing that the page's own, which led there, is left alone for.
        case $status in 2?? | 404 | 410) ;; *) read -r _ status _ <"$heads" ;; esac
    fi
    # curl takes more behind the number than a number, and in $((…)) bash would run what is in a[$(…)].
    [[ $status =~ ^[0-9]{3} ]] && status=${BASH_REMATCH[0]} || status=0
    # Of a page that is too large, or was cut off, the status says nothing, and there is a part at most.
    [ "$failure" != 0 ] || digest=$(sha256sum <"$page" | cut -c1-64)
    jq -c --argjson status "$((10#$status))" --arg digest "$digest" --arg group "$address" '
        {request_id, url, host, crawled_at: now, http_status: $status} +
        if $group == "" then {} else {$group} end +
        if $status == 404 or $status == 410 then {result: "gone"}
        elif $status >= 200 and $status < 300 and $digest != "" then {$digest}
        else {result: "failed"} end' <<<"$1"
}

# kcat commits what it has written out, before it is answered: of a crawler that dies, the page at
# hand is asked for again after its deadline. librdkafka's own partitioner is not Kafka's.
kcat -q -u -b "$servers" -X auto.offset.reset=earliest -G "${prefix}crawlers" "${prefix}crawl-requests" |
    while read -r request; do
        jq -e '.deadline_at > now' <<<"$request" >/dev/null || continue # it was asked for again
        printf '%s\t%s\n' "$(jq -r .host <<<"$request")" "$(answer "$request")" |
            kcat -P -K '\t' -b "$servers" -t "${prefix}crawl-outcomes" \
                -X topic.partitioner=murmur2_random -X acks=all
    done
