#!/bin/sh
# The examples run and learn without files, servers or a network.
set -eu
folder=${TEST_TMPDIR:-$(mktemp -d)}

# learnt NAME VALUE CONDITION: checks `value` with an awk condition.
learnt() {
  echo "$1: $2, expected $3"
  awk -v value="$2" "BEGIN { exit !($3) }"
}

# last FIELD PROGRAM FLAGS...: prints a field of the program's last evaluation.
last() {
  field=$1 program=$2
  shift 2
  "examples/$program" --local --dir="$folder/$program" "$@" |
    sed -n "s/.* evaluation .* $field=\([-0-9.]*\) .*/\1/p" | tail -n 1
}

# A random guess scores 0.1.
single=$(examples/mnist_single_process | sed -n 's/^accuracy //p')
learnt "single process" "$single" "value > 0.8"
learnt "mnist_torchps" "$(last accuracy mnist_torchps --job=examples/mnist.textproto)" "value > 0.8"

# A random guess scores 0.5. Layers trained on digits must beat untrained layers.
tuned=$(last accuracy fine_tune --set model.init_from="$folder/mnist_torchps/model.safetensors" \
  --set model.init_partial=true --set optimizer.learning_rate=0.05)
learnt "fine_tune" "$tuned" "value > 0.9"
rm -r "$folder/fine_tune"
learnt "without a backbone" "$(last accuracy fine_tune --set optimizer.learning_rate=0.05)" \
  "value < $tuned"

# The areas have a variance of 0.049.
learnt "two_inputs" "$(last loss two_inputs --set training.epochs=20 --set optimizer.kind=adam \
  --set optimizer.learning_rate=0.003)" "value < 0.005"

# A random walk needs 35 steps, the shortest walk 7.
learnt "reinforce" "$(last loss reinforce --set training.epochs=5 --set optimizer.kind=adam \
  --set optimizer.learning_rate=0.02)" "value < 10"

# An untrained generator misses the ink of a real digit by half, in either direction.
learnt "gan" "$(last ink gan --set training.epochs=5 --set optimizer.kind=adam \
  --set optimizer.adam.beta1=0.5 --set optimizer.learning_rate=0.002)" "value > -0.25 && value < 0.25"
