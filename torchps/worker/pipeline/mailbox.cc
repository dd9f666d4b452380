#include "torchps/worker/pipeline/mailbox.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace torchps {
namespace {

// Far above real tensor sizes. With this limit, the number of bytes fits into 64 bits.
constexpr int64_t kMaxElements = int64_t{1} << 40;

// Returns the bytes of an element, or 0 for an unknown type.
int64_t ElementBytes(TensorHeader::Type type) {
  switch (type) {
    case TensorHeader::UINT8:
    case TensorHeader::BOOL:
      return 1;
    case TensorHeader::FLOAT16:
    case TensorHeader::BFLOAT16:
      return 2;
    case TensorHeader::FLOAT32:
    case TensorHeader::INT32:
      return 4;
    case TensorHeader::FLOAT64:
    case TensorHeader::INT64:
      return 8;
    default:
      return 0;
  }
}

int64_t MemoryOf(const TensorMessage& parcel) {
  constexpr int64_t kMapEntry = 128;
  return static_cast<int64_t>(parcel.SpaceUsedLong()) + kMapEntry;
}

}  // namespace

absl::Status CheckTensor(const TensorMessage& parcel) {
  const TensorHeader& header = parcel.tensor();
  if (header.type() == TensorHeader::NONE) {
    if (parcel.payload().empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("a parcel has bytes and no tensor");
  }
  const int64_t element_bytes = ElementBytes(header.type());
  if (element_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of type ", static_cast<int>(header.type()), ", which is unknown"));
  }
  const std::string shape = absl::StrCat("[", absl::StrJoin(header.shape(), ", "), "]");
  int64_t elements = 1;
  for (const int64_t dimension : header.shape()) {
    if (dimension < 0 || (dimension > 0 && elements > kMaxElements / dimension)) {
      return absl::InvalidArgumentError(absl::StrCat("a tensor of the invalid shape ", shape));
    }
    elements *= dimension;
  }
  const int64_t bytes = elements * element_bytes;
  if (static_cast<int64_t>(parcel.payload().size()) != bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a tensor of the shape ", shape, " came with ",
                                                   parcel.payload().size(), " bytes; expected ",
                                                   bytes));
  }
  if (header.type() == TensorHeader::BOOL &&
      absl::string_view(parcel.payload()).find_first_not_of(absl::string_view("\0\1", 2)) !=
          absl::string_view::npos) {
    return absl::InvalidArgumentError("a tensor of booleans other than 0 and 1");
  }
  return absl::OkStatus();
}

Mailbox::Mailbox(StopLatch* stop, int64_t max_bytes) : stop_(stop), max_bytes_(max_bytes) {
  on_stop_.emplace(stop, [this] {
    const MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.SignalAll();
  });
}

void Mailbox::Open(uint64_t meeting) {
  const MutexLock lock(&mutex_);
  meeting_ = meeting;
}

absl::Status Mailbox::Check(uint64_t meeting) const {
  const MutexLock lock(&mutex_);
  if (meeting_ != 0 && meeting == meeting_) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("this process is not in meeting ", meeting, " of a replica, or not yet"));
}

absl::Status Mailbox::Put(TensorMessage parcel) {
  if (absl::Status status = Check(parcel.meeting()); !status.ok()) return status;
  if (absl::Status status = CheckTensor(parcel); !status.ok()) return status;
  const int64_t bytes = MemoryOf(parcel);
  const Key key(parcel.kind(), parcel.from(), parcel.order(), parcel.micro_batch());
  const MutexLock lock(&mutex_);
  if (parcels_.count(key) > 0) return absl::AlreadyExistsError("this parcel was already received");
  if (bytes > max_bytes_ - bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("its waiting messages take ", bytes_ >> 20, " MiB of memory, and this one of ",
                     bytes >> 20, " MiB exceeds the limit of ", max_bytes_ >> 20,
                     " MiB; set --micro_batches higher, or give that process more memory"));
  }
  parcels_.emplace(key, std::move(parcel));
  bytes_ += bytes;
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::StatusOr<TensorMessage> Mailbox::Take(int from, const ParcelName& name) {
  const Key key(name.kind, from, name.order, name.micro_batch);
  {
    const MutexLock lock(&mutex_);
    while (true) {
      const auto found = parcels_.find(key);
      if (found != parcels_.end()) {
        bytes_ -= MemoryOf(found->second);
        TensorMessage parcel = std::move(found->second);
        parcels_.erase(found);
        return parcel;
      }
      if (!status_.ok()) return status_;
      if (stopped_) break;
      changed_.Wait(&mutex_);
    }
  }
  return absl::CancelledError(stop_->reason());
}

bool Mailbox::Fail(const absl::Status& status) {
  const MutexLock lock(&mutex_);
  if (!status_.ok()) return false;
  status_ = status;
  changed_.SignalAll();
  return true;
}

absl::Status Mailbox::status() const {
  const MutexLock lock(&mutex_);
  return status_;
}

}  // namespace torchps
