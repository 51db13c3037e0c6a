#!/usr/bin/env bash
#SBATCH --job-name=towtank-kit
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --time=00:20:00
# One node, measured against what was predicted for it before: at most fifteen minutes, one report to send back.
#
#   kit/run.sh [--dry-run] [--towtank BINARY] [--data FOLDER] [--model NAME] [--out FOLDER]     on the node itself
#   sbatch kit/run.sh --towtank BINARY                                                         under Slurm
#
# It predicts from a published model, freezes that, calibrates the node, predicts again, freezes that too, and then runs six settings that
# neither prediction has seen. --dry-run says what it would do, and does nothing.
set -uo pipefail

towtank=towtank data='' model='' out=towtank-report dry=''
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry=yes ;;
        --help | -h)
            sed -n '/^# One node/,/^$/{/^#/{s/^# \{0,1\}//;p}}' "$0"
            exit 0
            ;;
        --towtank | --data | --model | --out)
            [ $# -ge 2 ] || { echo "kit: $1 wants a value" >&2; exit 2; }
            declare "${1#--}=$2"
            shift
            ;;
        *) echo "kit: \`$1\` is no option; the first lines of this script say what there is" >&2; exit 2 ;;
    esac
    shift
done

gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null || true)
count=$(printf '%s' "$gpus" | grep -c . || true)
if [ -z "$model" ]; then
    case $gpus in
        *A100*80GB* | *DGX*) model=dgx-a100 ;;
        *A100*) model=p4d.24xlarge ;;
        *H100* | *H200*) model=p5.48xlarge ;;
        *) model=p4d.24xlarge ;;
    esac
fi
ranks=$((count > 0 ? count : 8))
device=$([ "$count" -gt 0 ] && echo cuda:all || echo host)
threads=$(nproc)

# Six settings: a name, and what is set. Each has some dozens of steps a rank. What `quickstart` expects of memory is its own budget.
base=(--ranks "$ranks" --set loader.epochs=5 --set loader.tail=drop --set ranks.barrier=true --set "loader.budget=4 GiB")
base+=(--set "expect.peak_bytes_in_flight.max=4 GiB" --set "loader.threads=$threads")
settings=(
    "as-it-is|consumer.step=25 ms|loader.batch=32"
    "half-the-threads|loader.threads=$(((threads + 1) / 2))|consumer.step=25 ms|loader.batch=32"
    "few-lanes|loader.lanes=$((threads / ranks + 1))|consumer.step=25 ms|loader.batch=32"
    "completion-order|loader.order=completion|consumer.step=25 ms|loader.batch=32"
    "large-batches|loader.batch=128|consumer.step=100 ms"
    "step-bound|consumer.step=200 ms|loader.batch=32"
)

started=$(date +%s)
limit=840
did=0

# step NAME SECONDS COMMAND...: a step, unless the time is over; kept in OUT/NAME.txt.
step() {
    local name=$1 most=$2
    shift 2
    local left=$((limit - $(date +%s) + started))
    if [ -n "$dry" ]; then
        printf '%-36s at most %3s s:' "$name" "$most"
        printf ' %q' "$@"
        printf '\n'
        return
    fi
    if [ "$left" -lt 20 ]; then
        echo "$name: left out, the fifteen minutes are over" | tee -a "$out/left-out.txt"
        return
    fi
    echo "== $name"
    timeout "$((most < left ? most : left))" "$@" > "$out/$name.txt" 2>&1 || echo "$name: exit $?" | tee -a "$out/failed.txt"
    did=$((did + 1))
}

if [ -n "$dry" ]; then
    echo "dry run: nothing is done"
    echo "GPUs: ${gpus:-none that nvidia-smi knows; the host would stand for them}"
    echo "model to predict from: $model; ranks: $ranks on $device; threads: $threads; report: $out.tar.gz"
else
    command -v "$towtank" > /dev/null || { echo "kit: no program \`$towtank\`; \`cargo build --release\` makes target/release/towtank, named by --towtank" >&2; exit 2; }
    out=${out%/}
    mkdir -p "$out" && : > "$out/started.txt" || { echo "kit: cannot write to \`$out\`; name another folder with --out" >&2; exit 2; }
    rm -f "$out/failed.txt" "$out/left-out.txt"
fi

with=()
[ -z "$data" ] || with=(--data "$data")
images=$([ -n "$data" ] && echo "$data" || echo "$out/images")
[ -n "$data" ] || { step images 120 "$towtank" synth --count 4000 "$images"; with=(--data "$images"); }

step hardware 30 sh -c 'nvidia-smi; nvidia-smi topo -m; lscpu; free -b; cat /sys/fs/cgroup/cpu.max; uname -a; env | grep -E "^(SLURM|CUDA)"; true'
predict() {
    for setting in "${settings[@]}"; do
        IFS='|' read -r -a fields <<< "$setting"
        local sets=()
        for field in "${fields[@]:1}"; do sets+=(--set "$field"); done
        step "$1-${fields[0]}" 30 "$towtank" sim quickstart "${with[@]}" "${base[@]}" --set "machine=$2" "${sets[@]}" --freeze "$out/$1-${fields[0]}.json"
    done
}
predict published "$model"
step calibrate 150 "$towtank" calibrate --device "$device" --out "$out/node.toml"
predict calibrated "$out/node.toml"
for setting in "${settings[@]}"; do
    for prediction in published calibrated; do
        step "measured-$prediction-${setting%%|*}" 45 "$towtank" compare --frozen "$out/$prediction-${setting%%|*}.json" "${with[@]}" --device "$device" --json
    done
done

if [ -n "$dry" ]; then
    echo "then: tar of everything but the images, to send back"
    exit 0
fi
tar -czf "$out.tar.gz" --exclude="$images" "$out"
echo "$did steps in $(($(date +%s) - started)) s; send back $out.tar.gz"
[ ! -e "$out/failed.txt" ]
