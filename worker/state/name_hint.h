#pragma once

#include <set>
#include <string>

namespace torchps {

// Looks for a prefix, such as DistributedDataParallel's "module.", that maps the file's names to
// the module's when removed or added. Returns a clause with the prefix and a line of Python that
// fixes the file. Returns "" unless the prefix helps at least half of the smaller side's names.
std::string PrefixHint(const std::set<std::string>& module, const std::set<std::string>& file);

}  // namespace torchps
