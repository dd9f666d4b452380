#include "job/file/unknown_field.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/closest_name.h"
#include "proto/job.pb.h"

namespace torchps {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Maximum number of suggestions.
constexpr size_t kMaxPlaces = 3;

}  // namespace

std::vector<std::string> PlacesOfField(absl::string_view name) {
  if (name == "lr") name = "learning_rate";
  std::vector<std::string> places;
  std::vector<std::pair<std::string, const Descriptor*>> level = {{"", JobSpec::descriptor()}};
  std::vector<const Descriptor*> seen;
  while (places.empty() && !level.empty()) {
    std::vector<std::pair<std::string, const Descriptor*>> next;
    for (const auto& [prefix, message] : level) {
      seen.push_back(message);
      for (int i = 0; i < message->field_count(); ++i) {
        const FieldDescriptor& field = *message->field(i);
        const std::string path = absl::StrCat(prefix, field.name());
        if (field.name() == name) places.push_back(path);
        const bool below = !field.is_repeated() && field.message_type() != nullptr;
        if (below && std::count(seen.begin(), seen.end(), field.message_type()) == 0) {
          next.emplace_back(path + ".", field.message_type());
        }
      }
    }
    level = std::move(next);
  }
  if (places.size() > kMaxPlaces) places.resize(kMaxPlaces);
  return places;
}

std::string DescribeFields(const google::protobuf::Descriptor& message,
                           absl::string_view unknown_name) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  std::string meant = absl::StrJoin(PlacesOfField(unknown_name), " or ");
  if (meant.empty()) {
    const std::string closest = ClosestName(unknown_name, names);
    if (!closest.empty()) meant = absl::StrCat("\"", closest, "\"");
  }
  return absl::StrCat(meant.empty() ? "" : absl::StrCat("did you mean ", meant, "? "),
                      "it has: ", absl::StrJoin(names, ", "));
}

}  // namespace torchps
