#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "proto/report.pb.h"
#include "tools/base/flag_table.h"
#include "tools/drill/drill.h"
#include "tools/drill/fault_schedule.h"
#include "tools/run_plan/run_plan.h"

namespace torchps {

// `psctl drill`: a whole run whose parts and ways are harmed on a schedule, and what it survived.

std::vector<FlagSpec> DrillFlags();

struct DrillOptions {
  RunPlan run;
  FaultSchedule::Options faults;
};

// As PlanRun (tools/run_plan/plan_run.h).
absl::StatusOr<DrillOptions> PlanDrill(const FlagValues& flags,
                                       const std::string& program_directory);

// The drill's result for people: kills and freezes, how long each server was away, what was rolled
// back, the final accuracy, how long the others stood still, and the verdict. What is the report's
// stands where there is one.
std::string DrillText(const DrillFigures& figures, absl::Duration began,
                      const absl::optional<Report>& report);

int DrillCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
