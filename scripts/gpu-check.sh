#!/usr/bin/env bash
# Is the way to this computer's GPU right, and as fast as its link? At most eight minutes. It builds nothing: it runs binaries that were built
# before, here or elsewhere (the driver is opened at run time, so no CUDA is needed to build them):
#
#   cargo build --release && cargo build --release --bench gpu
#   scripts/gpu-check.sh target/release [RESULTS]
set -uo pipefail

usage='usage: scripts/gpu-check.sh FOLDER-OF-BINARIES [FOLDER-FOR-RESULTS]'
[ $# -ge 1 ] || { echo "$usage" >&2; exit 2; }
bin=$1
out=${2:-gpu-check}
towtank=$bin/towtank
bench=$(find "$bin" "$bin/deps" -maxdepth 1 -name 'gpu-*' -type f -perm -u+x ! -name '*.d' 2>/dev/null | xargs -r ls -t | head -n 1)
for program in "$towtank" "$bench"; do
    [ -x "$program" ] || { echo "gpu-check: no \`${program:-gpu-HASH}\` in $bin; build it with the commands in this script" >&2; exit 2; }
done
mkdir -p "$out"
failed=0

# step NAME SECONDS COMMAND...: what it says is shown, and kept in RESULTS/NAME.txt.
step() {
    local name=$1 limit=$2
    shift 2
    printf '\n== %s\n' "$name"
    timeout "$limit" "$@" 2>&1 | tee "$out/$name.txt"
    local rc=${PIPESTATUS[0]}
    [ "$rc" = 0 ] || { echo "gpu-check: $name failed ($rc)"; failed=1; }
}

command -v nvidia-smi > /dev/null && step hardware 20 sh -c 'nvidia-smi; nvidia-smi topo -m; nproc; uname -sr'
step gpu 120 "$bench" 0 --batches 200 --samples 64
if grep -q "^no GPU here" "$out/gpu.txt"; then exit 1; fi
step calibrate 60 "$towtank" calibrate --quick --device cuda:0 --out "$out/node.toml"
# Predictions that nobody can change once the runs are known.
settings=(
    'decode-bound:consumer.step=1 ms'
    'balanced:consumer.step=20 ms'
    'step-bound:consumer.step=60 ms'
)
for setting in "${settings[@]}"; do
    step "predict-${setting%%:*}" 10 "$towtank" sim quickstart --set machine="$out/node.toml" --set "${setting#*:}" --set dataset.count=2000 --freeze "$out/${setting%%:*}.frozen.json"
done
for setting in "${settings[@]}"; do
    step "compare-${setting%%:*}" 50 "$towtank" compare --frozen "$out/${setting%%:*}.frozen.json" --device cuda:0
done
step pageable 60 "$towtank" run quickstart --device cuda:0,pageable --set "consumer.step=1 ms" --set dataset.count=2000
printf '\n%s; results in %s\n' "$([ "$failed" = 0 ] && echo 'everything ran' || echo 'SOMETHING FAILED')" "$out"
exit "$failed"
