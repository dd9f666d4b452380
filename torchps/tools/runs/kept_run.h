#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/proto/report.pb.h"
#include "torchps/tools/report/report_text.h"
#include "torchps/tools/run_folder/run_list.h"

namespace torchps {

// Describes a run from the files in the run folder. Stateless; thread-safe.

// Returns "running", "finished", "failed", "stopped", or "killed" if psctl ended without recording
// an outcome.
std::string ReadState(const ListedRun& run);

// Returns the result in a few words: "test accuracy 98.10 %", "failed: server 0 exited with ...".
std::string OutcomeText(const ListedRun& run);

// Returns ResultText() with only the first metric.
std::string ShortResultText(const Metrics& metrics, double loss);

// Returns the run time, up to `now` if the run is running. Zero if it was killed, because the end
// is unknown.
absl::Duration GetTime(const ListedRun& run, absl::Time now);

// Returns, for example, "2026-11-28 10:15:00", in local time.
std::string BeganText(const ListedRun& run);

// Returns the report's JSON. NOT_FOUND: the run lacks a report; the message explains why.
absl::StatusOr<std::string> ReadReportText(const ListedRun& run);

// Returns the report. NOT_FOUND: as ReadReportText. DATA_LOSS: it cannot be parsed.
absl::StatusOr<Report> ReadReport(const ListedRun& run);

}  // namespace torchps
