#pragma once

#include <set>
#include <string>

namespace torchps {

// Looks for one prefix that makes a file's names those of a module if it is removed from them, as
// DistributedDataParallel's "module.", or added to them. Returns a clause that names the prefix and
// the line of Python that mends the file; "" if no prefix helps at least half of the smaller side.
std::string PrefixHint(const std::set<std::string>& module, const std::set<std::string>& file);

}  // namespace torchps
