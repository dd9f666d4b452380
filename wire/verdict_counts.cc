#include "wire/verdict_counts.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

namespace torchps {

bool Count(Verdict verdict, VerdictCounts* counts) {
  switch (verdict) {
    case ACCEPTED:
      counts->set_accepted(counts->accepted() + 1);
      return true;
    case SCALED:
      counts->set_scaled(counts->scaled() + 1);
      return true;
    case REJECTED_STALE:
      counts->set_rejected(counts->rejected() + 1);
      return true;
    case LATE:
      counts->set_late(counts->late() + 1);
      return true;
    case WITHHELD:
      counts->set_withheld(counts->withheld() + 1);
      return true;
    default:
      return false;
  }
}

void Add(const VerdictCounts& part, VerdictCounts* sum) {
  const google::protobuf::Descriptor& fields = *VerdictCounts::descriptor();
  const google::protobuf::Reflection& reflection = *VerdictCounts::GetReflection();
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = fields.field(i);
    reflection.SetUInt64(sum, field,
                         reflection.GetUInt64(*sum, field) + reflection.GetUInt64(part, field));
  }
}

}  // namespace torchps
