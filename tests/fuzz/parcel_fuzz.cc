// Fuzzes a process of a replica with messages from the other processes.

#include <google/protobuf/stubs/logging.h>

#include "absl/status/status.h"
#include "tests/fuzz/fuzz_target.h"
#include "torchps/common/stop_latch.h"
#include "torchps/proto/replica.pb.h"
#include "torchps/worker/pipeline/mailbox.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  // Silences Protobuf's warnings about strings that are not UTF-8.
  static const auto silenced = google::protobuf::SetLogHandler(nullptr);
  (void)silenced;
  TensorMessage parcel;
  if (!parcel.ParseFromArray(data, static_cast<int>(size))) return 0;
  StopLatch stop;
  Mailbox mailbox(&stop, /*max_bytes=*/int64_t{1} << 15);
  mailbox.Open(7);
  const absl::Status stored = mailbox.Put(parcel);
  if (!stored.ok()) {
    FUZZ_CHECK(parcel.meeting() != 7 || absl::IsInvalidArgument(stored) ||
               absl::IsResourceExhausted(stored));
    return 0;
  }
  FUZZ_CHECK(parcel.meeting() == 7 && CheckTensor(parcel).ok());
  if (parcel.tensor().type() != TensorHeader::NONE) {
    int64_t elements = 1;
    for (const int64_t dimension : parcel.tensor().shape()) {
      FUZZ_CHECK(dimension >= 0);
      elements *= dimension;
    }
    FUZZ_CHECK(static_cast<int64_t>(parcel.payload().size()) >= elements);
  }
  FUZZ_CHECK(!mailbox.Put(parcel).ok());
  const auto taken =
      mailbox.Take(parcel.from(), {parcel.kind(), parcel.order(), parcel.micro_batch()});
  FUZZ_CHECK(taken.ok() && taken->SerializeAsString() == parcel.SerializeAsString());
  // Taking a message makes room for it again.
  FUZZ_CHECK(mailbox.Put(parcel).ok());
  return 0;
}
