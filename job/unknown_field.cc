#include "job/unknown_field.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/closest_name.h"

namespace torchps {
std::string DescribeFields(const google::protobuf::Descriptor& message,
                           absl::string_view unknown_name) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  const std::string closest = ClosestName(unknown_name, names);
  return absl::StrCat(closest.empty() ? "" : absl::StrCat("did you mean \"", closest, "\"? "),
                      "it has: ", absl::StrJoin(names, ", "));
}

}  // namespace torchps
