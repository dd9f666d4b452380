// Fuzzes the store of another server's copies with that server's calls, and the fetch of copies
// with the replies of their keeper. The input is a sequence of messages: a byte that selects the
// kind, the length in two bytes, and the message.

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/backup/backup_fetch.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/server/backup/backup_store.h"

namespace torchps {
namespace {

// Answers with any list, and with 2 MiB of data for all of its files together.
class AnyKeeper final : public BackupPeer {
 public:
  explicit AnyKeeper(ListCopiesReply list) : list_(std::move(list)) {}

  absl::StatusOr<StoreCopyReply> Store(const StoreCopyRequest&) override { return Refusal(); }
  absl::StatusOr<DropCopiesReply> Drop(const DropCopiesRequest&) override { return Refusal(); }
  absl::StatusOr<ListCopiesReply> List(const ListCopiesRequest&) override { return list_; }
  absl::StatusOr<ReadCopyReply> Read(const ReadCopyRequest& request) override {
    const uint64_t whole = request.file().bytes();
    FUZZ_CHECK(request.offset() < whole);
    ReadCopyReply reply;
    reply.set_data(
        std::string(std::min({left_, request.max_bytes(), whole - request.offset()}), 'x'));
    left_ -= reply.data().size();
    return reply;
  }
  std::string name() const override { return "server 1"; }

 private:
  static absl::Status Refusal() { return absl::UnavailableError("not called by a fetch"); }

  const ListCopiesReply list_;
  uint64_t left_ = 2 << 20;
};

template <class Message>
Message Parse(absl::string_view bytes) {
  Message message;
  message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  return message;
}

void CheckName(const std::string& file) {
  FUZZ_CHECK(!file.empty() && file.front() != '/');
  for (const absl::string_view part : absl::StrSplit(file, '/')) FUZZ_CHECK(part != "..");
}

// Stores a piece. The copy then has its bytes, unless the file is incomplete.
void Store(BackupStore& store, const StoreCopyRequest& request) {
  const auto stored = store.Store(request);
  if (!stored.ok()) return;
  const CopiedFile& file = request.file();
  CheckName(file.file());
  FUZZ_CHECK(stored->bytes() >= request.offset() + request.data().size());
  if (file.bytes() > 0 && stored->bytes() < file.bytes()) return;
  ReadCopyRequest read;
  *read.mutable_file() = file;
  read.set_offset(request.offset());
  read.set_max_bytes(request.data().size());
  const auto piece = store.Read(read);
  // An earlier attempt may have sent other bytes of an unfinished whole file.
  FUZZ_CHECK(piece.ok() && piece->data().size() == request.data().size());
  if (file.bytes() == 0) FUZZ_CHECK(piece->data() == request.data());
}

void Fetch(FileSystem& files, ListCopiesReply list) {
  AnyKeeper keeper(std::move(list));
  BackupFetch::Options options;
  options.files = &files;
  options.peer = &keeper;
  options.directory = "lost";
  options.begin = [](const std::string&, int64_t pieces) { FUZZ_CHECK(pieces >= 0); };
  const auto fetched = BackupFetch(options).Run();
  FUZZ_CHECK(!fetched.ok() || *fetched >= 0);
  BackupFetch(options).Replace("job/log", /*crc32c=*/0).IgnoreError();
  BackupFetch(options)
      .ReplaceFolder(
          "job", [](const auto& copies) { return !copies.empty(); },
          [](const std::string&) { return true; })
      .status()
      .IgnoreError();
}

}  // namespace
}  // namespace torchps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  // Silences Protobuf's warnings about strings that are not UTF-8.
  static const auto silenced = google::protobuf::SetLogHandler(nullptr);
  (void)silenced;
  FaultyFileSystem files;
  FUZZ_CHECK(files.CreateDirectories("own").ok());
  FUZZ_CHECK(WriteFileAtomically(files, "own/model", "values").ok());
  auto store = std::make_unique<BackupStore>(&files, "own");
  absl::string_view rest(reinterpret_cast<const char*>(data), size);
  while (rest.size() >= 3) {
    const auto kind = static_cast<uint8_t>(rest[0]);
    const size_t length = static_cast<uint8_t>(rest[1]) | static_cast<uint8_t>(rest[2]) << 8;
    const absl::string_view message = rest.substr(3, length);
    rest.remove_prefix(3 + message.size());
    switch (kind % 6) {
      case 0:
        Store(*store, Parse<StoreCopyRequest>(message));
        break;
      case 1:
        store->Drop(Parse<DropCopiesRequest>(message)).status().IgnoreError();
        break;
      case 2: {
        const auto list = store->List(Parse<ListCopiesRequest>(message));
        FUZZ_CHECK(list.ok());
        for (const CopiedFile& file : list->file()) CheckName(file.file());
        break;
      }
      case 3: {
        const auto request = Parse<ReadCopyRequest>(message);
        const auto reply = store->Read(request);
        FUZZ_CHECK(!reply.ok() || reply->data().size() <= request.max_bytes());
        break;
      }
      case 4:
        Fetch(files, Parse<ListCopiesReply>(message));
        break;
      default:
        store = std::make_unique<BackupStore>(&files, "own");
    }
  }
  const auto own = ReadWholeFile(files, "own/model", 100);
  FUZZ_CHECK(own.ok() && *own == "values");
  const auto names = files.List("own");
  FUZZ_CHECK(names.ok());
  for (const std::string& name : *names) {
    uint64_t job_id = 0;
    int server_index = 0;
    FUZZ_CHECK(name == "model" || ParseBackupFolderName(name, &job_id, &server_index));
  }
  return 0;
}
