#include "torchps/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/sample_checkpoint.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/storage/crc32c.h"

namespace torchps {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Manifest SampleManifest() {
  const SampleModel model;
  std::vector<ShardInfo> shards(2);
  for (int i = 0; i < 2; ++i) {
    shards[static_cast<size_t>(i)].set_server_index(i);
    shards[static_cast<size_t>(i)].set_file(CheckpointDirectory::ShardName(i, 2));
    shards[static_cast<size_t>(i)].set_bytes(uint64_t{1} << 40);
    shards[static_cast<size_t>(i)].set_crc32c(0xdeadbeef);
  }
  Manifest manifest = MakeManifest(model, 12, shards);
  JobSpec& job = *manifest.mutable_job();
  job.set_name("a \"name\"");
  job.mutable_consistency()->set_staleness_bound(0);  // present, although 0
  job.mutable_optimizer()->set_learning_rate(0.1);
  PreprocessingEntry& entry = *job.mutable_data()->add_preprocessing();
  entry.set_key("scale");
  entry.set_value("1");
  CoordinatorState& coordinator = *manifest.mutable_coordinator();
  coordinator.set_running_seconds(1.0 / 3.0);
  coordinator.set_next_incarnation(std::numeric_limits<uint64_t>::max());
  coordinator.set_coordinator_incarnation(7);
  coordinator.mutable_leases()->add_returned()->set_end(7);
  return manifest;
}

// Returns `text` with a changed body and a matching checksum.
std::string Forge(const std::string& text, const std::string& from, const std::string& to) {
  const size_t begin = text.find("\"manifest\": ") + 12;
  const std::string body =
      absl::StrReplaceAll(text.substr(begin, text.size() - begin - 2), {{from, to}});
  return absl::StrCat("{\n\"crc32c\": \"", absl::StrFormat("%08x", Crc32c(0, body)),
                      "\",\n\"manifest\": ", body, "}\n");
}

TEST(ManifestTest, RoundTripsEveryField) {
  const Manifest manifest = SampleManifest();
  const auto text = EncodeManifest(manifest);
  ASSERT_EQ(text.status(), absl::OkStatus());
  const auto read = DecodeManifest(*text);
  ASSERT_EQ(read.status(), absl::OkStatus());
  Manifest expected = manifest;
  expected.set_format_version(kCheckpointFormatVersion);
  EXPECT_TRUE(MessageDifferencer::Equals(*read, expected));
  EXPECT_TRUE(read->job().consistency().has_staleness_bound());
}

TEST(ManifestTest, ReadsTheFieldNamesOfEarlierVersions) {
  const auto text = EncodeManifest(SampleManifest());
  ASSERT_TRUE(text.ok());
  const auto read = DecodeManifest(Forge(*text, "coordinator_incarnation", "coordinator_life"));
  ASSERT_EQ(read.status(), absl::OkStatus());
  EXPECT_EQ(read->coordinator().coordinator_incarnation(), 7u);
}

TEST(ManifestTest, WritesReadableJson) {
  const auto text = EncodeManifest(SampleManifest());
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, StartsWith("{\n\"crc32c\": \""));
  EXPECT_THAT(*text, HasSubstr("\"checkpoint\": \"12\""));
  EXPECT_THAT(*text, HasSubstr("\"name\": \"body.weight\""));
  EXPECT_THAT(*text, HasSubstr("\"created\": \"2023-04-05T06:07:08Z\""));
}

TEST(ManifestTest, RejectsAnUnknownFormatVersionByNumber) {
  const auto text = EncodeManifest(SampleManifest());
  ASSERT_TRUE(text.ok());
  const absl::Status status =
      DecodeManifest(Forge(*text, "\"format_version\": 2", "\"format_version\": 3, \"new\": 1"))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("format 3; this program reads format 2"));
}

TEST(ManifestTest, RejectsInvalidContentsWithAValidChecksum) {
  const auto text = EncodeManifest(SampleManifest());
  ASSERT_TRUE(text.ok());
  ASSERT_EQ(DecodeManifest(Forge(*text, "x", "x")).status(), absl::OkStatus());
  const char* const cases[][3] = {
      {"\"checkpoint\": \"12\",", "", "checkpoint number is 0"},
      {"server-1-of-2", "../../server-1-of-2", "shard 1 is '../../server-1-of-2.safetensors'"},
      {"\"server_index\": 1", "\"server_index\": 0", "of server 0"},
      {"\"server_count\": 2", "\"server_count\": 3", "2 shards of 3 servers"},
      {"\"server_count\": 2", "\"server_count\": -2", "2 shards of -2 servers"},
      {"\"block_bytes\": \"256\"", "\"block_bytes\": \"255\"", "block_bytes is 255"},
      {"\"block_bytes\": \"256\"", "\"block_bytes\": \"0\"", "block_bytes is 0"},
      {"\"name\": \"body.bias\"", "\"name\": \"body.weight\"", "body.weight"},
      {"\"key\": \"scale\"", "\"scale\": \"1\"", "an entry without a key"},
      {"\"37\"", "\"-37\"", "body.weight"},
      {"\"37\"", "\"x\"", "x"},
      {"\"37\"", "{", ""},
  };
  for (const auto& [from, to, words] : cases) {
    ASSERT_THAT(*text, HasSubstr(from));
    const absl::Status status = DecodeManifest(Forge(*text, from, to)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << from << " -> " << to;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
}

TEST(ManifestTest, RefusesToWriteAnInvalidManifest) {
  Manifest manifest = SampleManifest();
  manifest.mutable_shard(1)->set_file("server-1-of-3.safetensors");
  EXPECT_EQ(EncodeManifest(manifest).status().code(), absl::StatusCode::kInvalidArgument);
  manifest = SampleManifest();
  manifest.mutable_layout()->clear_segment();
  EXPECT_EQ(EncodeManifest(manifest).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ManifestTest, RejectsTextThatIsNotAManifest) {
  for (const char* const text : {"", "{}", "{\n\"crc32c\": \"00000000\",\n\"manifest\": }\n"}) {
    EXPECT_EQ(DecodeManifest(text).status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

}  // namespace
}  // namespace torchps
