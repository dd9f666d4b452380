#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/proto/report.pb.h"
#include "torchps/tools/base/flag_table.h"
#include "torchps/tools/drill/drill.h"
#include "torchps/tools/drill/fault_schedule.h"
#include "torchps/tools/run_plan/plan_run.h"

namespace torchps {

// Implements `psctl drill`: a whole run with faults injected into parts and links on a schedule,
// and a report of the effects.

std::vector<FlagSpec> DrillFlags();

struct DrillOptions {
  RunPlan run;
  FaultSchedule::Options faults;
};

// Reads the flags of a drill. Like PlanRun() (torchps/tools/run_plan/plan_run.h), and with the same
// errors.
absl::StatusOr<DrillOptions> PlanDrill(const FlagValues& flags,
                                       const std::string& program_directory);

// Returns the drill's result as text: kills and freezes, the recovery time of each server, the
// updates rolled back, the final accuracy, stalls, and the verdict, which begins with the failure
// of a run whose exit code is not 0. Omits the report's figures if `report` is not set.
std::string DrillText(const DrillFigures& figures, absl::Duration began,
                      const std::optional<Report>& report, int exit_code);

int DrillCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
