#!/bin/sh
# The examples run without a file, a server or a network, and learn.
set -eu
folder=${TEST_TMPDIR:-$(mktemp -d)}

# learnt WHAT VALUE CONDITION: an awk condition on `value`.
learnt() {
  echo "$1: $2, expected $3"
  awk -v value="$2" "BEGIN { exit !($3) }"
}

# last FIELD PROGRAM FLAGS...: a field of the program's last evaluation.
last() {
  field=$1 program=$2
  shift 2
  "examples/$program" --local --dir="$folder/$program" "$@" |
    sed -n "s/.* evaluation .* $field=\([-0-9.]*\) .*/\1/p" | tail -n 1
}

# Chance is 0.1.
single=$(examples/mnist_single_process | sed -n 's/^accuracy //p')
learnt "single process" "$single" "value > 0.8"
learnt "mnist_torchps" "$(last accuracy mnist_torchps --job=examples/mnist.textproto)" "value > 0.8"

# Chance is 0.5; layers that know digits do better than layers that know nothing.
tuned=$(last accuracy fine_tune --set model.init_from="$folder/mnist_torchps/model.safetensors" \
  --set model.init_partial=true --set optimizer.learning_rate=0.05)
learnt "fine_tune" "$tuned" "value > 0.9"
rm -r "$folder/fine_tune"
learnt "without a backbone" "$(last accuracy fine_tune --set optimizer.learning_rate=0.05)" \
  "value < $tuned"

# The variance of the areas is 0.049.
learnt "two_inputs" "$(last loss two_inputs --set training.epochs=20 --set optimizer.kind=adam \
  --set optimizer.learning_rate=0.003)" "value < 0.005"

# An aimless walk takes 35 steps, the shortest one 7.
learnt "reinforce" "$(last loss reinforce --set training.epochs=5 --set optimizer.kind=adam \
  --set optimizer.learning_rate=0.02)" "value < 10"

# What knows nothing draws with the ink of half a real digit too few or too many.
learnt "gan" "$(last ink gan --set training.epochs=5 --set optimizer.kind=adam \
  --set optimizer.adam.beta1=0.5 --set optimizer.learning_rate=0.002)" "value > -0.25 && value < 0.25"
