#include "torchps/server/registration.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

constexpr char kPrefix[] = "server-";
constexpr char kSuffix[] = ".place";
constexpr int64_t kMaxBytes = 4096;

std::optional<SavedIdentity> Parse(absl::string_view text) {
  std::map<std::string, std::string> fields;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    fields.insert(field);
  }
  SavedIdentity remembered;
  ServerIdentity& place = remembered.place;
  const bool whole = absl::SimpleAtoi(fields["job_id"], &place.job_id) &&
                     absl::SimpleAtoi(fields["server_index"], &place.server_index) &&
                     absl::SimpleAtoi(fields["server_count"], &place.server_count);
  if (!whole) return std::nullopt;
  place.address = fields["address"];
  place.coordinator = fields["coordinator"];
  remembered.listened = fields["listened"];
  return remembered;
}

}  // namespace

absl::Status SaveIdentity(FileSystem& files, const std::string& directory,
                          const SavedIdentity& place) {
  if (absl::Status made = files.CreateDirectories(directory); !made.ok()) return made;
  return WriteFileAtomically(
      files, absl::StrCat(directory, "/", kPrefix, place.place.server_index, kSuffix),
      absl::StrCat("job_id ", place.place.job_id, "\nserver_index ", place.place.server_index,
                   "\nserver_count ", place.place.server_count, "\naddress ", place.place.address,
                   "\ncoordinator ", place.place.coordinator, "\nlistened ", place.listened, "\n"));
}

std::optional<SavedIdentity> FindIdentity(FileSystem& files, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (!names.ok()) return std::nullopt;
  std::vector<std::string> found;
  for (const std::string& name : *names) {
    if (absl::StartsWith(name, kPrefix) && absl::EndsWith(name, kSuffix)) found.push_back(name);
  }
  if (found.size() != 1) return std::nullopt;
  const absl::StatusOr<std::string> text =
      ReadWholeFile(files, absl::StrCat(directory, "/", found.front()), kMaxBytes);
  return text.ok() ? Parse(*text) : std::nullopt;
}

Registration::Registration(Options options) : options_(std::move(options)) {
  thread_ = std::thread([this] { Run(); });
}

void Registration::Learn(const ServerIdentity& told) {
  MutexLock lock(&mutex_);
  if (told_.has_value() && *told_ == told) return;
  told_ = told;
  is_new_ = true;
  changed_.Signal();
}

std::string Registration::coordinator() const {
  MutexLock lock(&mutex_);
  return identity_.coordinator;
}

void Registration::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    if (calling_ != nullptr) calling_->TryCancel();
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

ServerIdentity Registration::Settle(ServerIdentity told) const {
  if (!CheckServerAddress(told.address).ok()) told.address = options_.listens;
  if (options_.advertise.has_value()) told.address = *options_.advertise;
  if (!CheckServerAddress(told.coordinator).ok()) told.coordinator.clear();
  if (options_.coordinator.has_value()) {
    told.coordinator = options_.coordinator->Find().value_or("");
  }
  return told;
}

std::optional<ServerIdentity> Registration::Recall() const {
  if (options_.directory.empty()) return std::nullopt;
  std::optional<SavedIdentity> found = FindIdentity(*options_.files, options_.directory);
  if (!found.has_value()) return std::nullopt;
  // The server has moved, so the old address is invalid.
  if (found->listened != options_.listens) found->place.address.clear();
  return found->place;
}

void Registration::Run() {
  const std::optional<ServerIdentity> recalled = Recall();
  {
    MutexLock lock(&mutex_);
    if (!told_.has_value()) told_ = recalled;
  }
  absl::Duration wait = absl::ZeroDuration();
  while (true) {
    ServerIdentity place;
    {
      MutexLock lock(&mutex_);
      AwaitNext(wait);
      while (!stopping_ && !told_.has_value()) changed_.Wait(&mutex_);
      if (stopping_) return;
      is_new_ = false;
      place = *told_;
    }
    // Repeated each time, because an address file may have changed.
    place = Settle(std::move(place));
    {
      MutexLock lock(&mutex_);
      identity_ = place;
    }
    wait = Register(place).ok() ? options_.interval : options_.pause;
  }
}

void Registration::AwaitNext(absl::Duration wait) {
  // After a spurious wakeup this returns early, which is harmless.
  while (!stopping_ && !is_new_ && wait > absl::ZeroDuration()) {
    changed_.WaitFor(&mutex_, std::min(wait, options_.pause));
    wait -= options_.pause;
    if (options_.wants_checkpoint()) return;
  }
}

absl::Status Registration::Register(const ServerIdentity& place) {
  const bool is_own = place.server_index == 0;
  // Servers of a cluster within one process have no addresses and do not register.
  if (place.address.empty()) return absl::OkStatus();
  if (place.coordinator.empty() && !is_own) return absl::UnavailableError("not known where");
  Remember(place);
  const std::string& coordinator = is_own ? place.address : place.coordinator;
  if (channel_ == nullptr || connected_to_ != coordinator) {
    absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
        options_.connect(place.server_index, coordinator);
    if (!channel.ok()) return channel.status();
    channel_ = *std::move(channel);
    connected_to_ = coordinator;
  }
  RegisterServerRequest request;
  request.set_job_id(place.job_id);
  request.set_server_count(place.server_count);
  request.mutable_place()->set_server_index(place.server_index);
  request.mutable_place()->set_server_incarnation(options_.server_incarnation);
  request.mutable_place()->set_address(place.address);
  request.set_wants_checkpoint(options_.wants_checkpoint());
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options_.timeout));
  {
    MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("the server stops");
    calling_ = &context;
  }
  RegisterServerReply reply;
  const absl::Status status =
      FromGrpcStatus(Coordinator::NewStub(channel_)->RegisterServer(&context, request, &reply));
  {
    MutexLock lock(&mutex_);
    calling_ = nullptr;
  }
  // Run() retries after any error. Only these two errors need the help of a person, so the log
  // reports them.
  const bool is_refused = absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status);
  const std::string complaint = is_refused ? std::string(status.message()) : "";
  if (is_refused && complaint != complaint_) {
    options_.log(absl::StrCat("the coordinator at ", coordinator, " rejects ", place.address,
                              " as this server's address: ", complaint));
  }
  complaint_ = complaint;
  return status;
}

void Registration::Remember(const ServerIdentity& place) {
  // Server 0 needs no saved identity, because it runs the coordinator in the same process.
  if (options_.directory.empty() || place.server_index == 0) return;
  if (remembered_.has_value() && *remembered_ == place) return;
  const absl::Status kept =
      SaveIdentity(*options_.files, options_.directory, {place, options_.listens});
  // Failures here only delay the next registration after a restart, so they are ignored.
  if (kept.ok()) remembered_ = place;
}

}  // namespace torchps
