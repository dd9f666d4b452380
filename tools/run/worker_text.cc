#include "tools/run/worker_text.h"

#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/base/format.h"

namespace torchps {

std::string ProgressText(const StatusLine& line, int epochs) {
  std::string text =
      absl::StrFormat("epoch %s/%d   step %6s", line.Field("epoch"), epochs, line.Field("step"));
  if (const auto loss = line.Number("loss")) absl::StrAppendFormat(&text, "   loss %.4f", *loss);
  if (const auto accuracy = line.Number("accuracy")) {
    absl::StrAppend(&text, "   accuracy ", FormatPercent(*accuracy, 1));
  }
  if (const auto rate = line.Number("samples_per_s")) {
    absl::StrAppendFormat(&text, "   %8s samples/s", WithThousands(std::llround(*rate)));
  }
  if (const auto share = line.Number("wait_share")) {
    absl::StrAppendFormat(&text, "   waiting %3.0f %%", *share * 100);
  }
  return text;
}

std::string EvaluationText(const StatusLine& line, int epochs) {
  std::string text = absl::StrCat("epoch ", line.Field("epoch"), "/", epochs);
  if (const auto accuracy = line.Number("accuracy")) {
    absl::StrAppend(&text, "   test accuracy ", FormatPercent(*accuracy, 2));
  }
  for (const auto& [name, value] : line.fields) {
    static const auto* const known =
        new std::set<std::string>{"slot", "epoch", "accuracy", "loss", "samples"};
    if (known->count(name) == 0) absl::StrAppend(&text, "   test ", name, " ", value);
  }
  if (const auto loss = line.Number("loss")) {
    absl::StrAppendFormat(&text, "   test loss %.4f", *loss);
  }
  if (const auto samples = line.Number("samples")) {
    absl::StrAppend(&text, "   on ", WithThousands(std::llround(*samples)), " samples");
  }
  return text;
}

}  // namespace torchps
