#include "torchps/server/registration.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_coordinator.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kLife = 9;

class RegistrationTest : public ::testing::Test {
 protected:
  // Options of a server that listens at beta:7000. After a successful call the next one follows in
  // an hour.
  Registration::Options Listening() {
    Registration::Options options;
    options.server_incarnation = kLife;
    options.listens = "beta:7000";
    options.files = files_.get();
    options.connect = [](int, const std::string& coordinator) {
      return grpc::CreateChannel(coordinator, grpc::InsecureChannelCredentials());
    };
    options.log = [this](const std::string& line) {
      MutexLock lock(&mutex_);
      said_.push_back(line);
    };
    options.interval = absl::Hours(1);
    options.pause = absl::Milliseconds(1);
    options.timeout = absl::Seconds(20);
    return options;
  }

  ServerIdentity Told(const std::string& address) const {
    ServerIdentity told;
    told.job_id = 7;
    told.server_index = 1;
    told.server_count = 2;
    told.address = address;
    told.coordinator = coordinator_.address();
    return told;
  }

  // Waits until the last address the coordinator received is `address`.
  bool IsRegisteredAt(const std::string& address) const {
    return Eventually([&] {
      const std::vector<RegisterServerRequest> heard = coordinator_.registered();
      return !heard.empty() && heard.back().place().address() == address;
    });
  }

  std::string NewDirectory() const {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    return absl::StrCat(testing::TempDir(), "/", name);
  }

  const std::unique_ptr<FileSystem> files_ = MakePosixFileSystem();
  FakeCoordinator coordinator_;
  Mutex mutex_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(RegistrationTest, RegistersTheAddressThatWorkersUse) {
  Registration registration(Listening());
  EXPECT_EQ(registration.coordinator(), "");
  registration.Learn(Told("door:17000"));
  ASSERT_TRUE(IsRegisteredAt("door:17000"));
  const RegisterServerRequest heard = coordinator_.registered().front();
  EXPECT_EQ(heard.job_id(), 7u);
  EXPECT_EQ(heard.server_count(), 2);
  EXPECT_EQ(heard.place().server_index(), 1);
  EXPECT_EQ(heard.place().server_incarnation(), kLife);
  EXPECT_EQ(registration.coordinator(), coordinator_.address());
}

TEST_F(RegistrationTest, RegistersTheListenAddressByDefault) {
  Registration registration(Listening());
  registration.Learn(Told(""));
  EXPECT_TRUE(IsRegisteredAt("beta:7000"));
}

TEST_F(RegistrationTest, AFlagOverridesTheWorkersAddress) {
  const FakeCoordinator flagged;
  Registration::Options options = Listening();
  options.advertise = "gate:1";
  options.coordinator = *AddressSource::Parse(flagged.address());
  Registration registration(std::move(options));
  registration.Learn(Told("door:17000"));
  ASSERT_TRUE(Eventually([&] { return !flagged.registered().empty(); }));
  EXPECT_EQ(flagged.registered().back().place().address(), "gate:1");
  EXPECT_TRUE(coordinator_.registered().empty());
}

TEST_F(RegistrationTest, RegistersAgainAfterEachInterval) {
  Registration::Options options = Listening();
  options.interval = absl::Milliseconds(1);
  Registration registration(std::move(options));
  registration.Learn(Told("door:17000"));
  EXPECT_TRUE(Eventually([&] { return coordinator_.registered().size() >= 3; }));
}

TEST_F(RegistrationTest, AsksForACheckpointAtOnce) {
  std::atomic<bool> wants{false};
  Registration::Options options = Listening();
  options.wants_checkpoint = [&] { return wants.load(); };
  Registration registration(std::move(options));
  registration.Learn(Told("door:17000"));
  ASSERT_TRUE(IsRegisteredAt("door:17000"));
  EXPECT_FALSE(coordinator_.registered().back().wants_checkpoint());
  wants = true;
  EXPECT_TRUE(Eventually([&] { return coordinator_.registered().back().wants_checkpoint(); }));
}

TEST_F(RegistrationTest, RetriesAndLogsARefusalOnce) {
  coordinator_.Refuse({grpc::StatusCode::PERMISSION_DENIED, "not with this certificate"});
  Registration registration(Listening());
  registration.Learn(Told("door:17000"));
  ASSERT_TRUE(Eventually([&] { return coordinator_.registered().size() >= 3; }));
  coordinator_.Refuse(grpc::Status::OK);
  registration.Stop();
  MutexLock lock(&mutex_);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_THAT(said_[0], HasSubstr("not with this certificate"));
}

TEST_F(RegistrationTest, ARestartedServerRegistersItsNewAddress) {
  Registration::Options options = Listening();
  options.directory = NewDirectory();
  {
    Registration first(options);
    first.Learn(Told("door:17000"));
    ASSERT_TRUE(IsRegisteredAt("door:17000"));
  }
  {
    Registration restarted(options);
    ASSERT_TRUE(Eventually([&] { return coordinator_.registered().size() == 2; }));
    EXPECT_TRUE(IsRegisteredAt("door:17000")) << "workers find it at the old address";
  }
  options.listens = "gamma:7000";
  options.server_incarnation = kLife + 1;
  const Registration moved(options);
  ASSERT_TRUE(IsRegisteredAt("gamma:7000"));
  EXPECT_EQ(coordinator_.registered().back().job_id(), 7u);
  EXPECT_EQ(coordinator_.registered().back().place().server_index(), 1);
  EXPECT_EQ(coordinator_.registered().back().place().server_incarnation(), kLife + 1);
}

TEST_F(RegistrationTest, FindsNoIdentityInADirectoryOfSeveralServers) {
  const std::string directory = NewDirectory();
  SavedIdentity place{Told("door:17000"), "beta:7000"};
  ASSERT_TRUE(SaveIdentity(*files_, directory, place).ok());
  EXPECT_EQ(FindIdentity(*files_, directory), place);
  place.place.server_index = 2;
  ASSERT_TRUE(SaveIdentity(*files_, directory, place).ok());
  EXPECT_EQ(FindIdentity(*files_, directory), std::nullopt);
}

TEST_F(RegistrationTest, FindsNoIdentityInAnUnreadableFile) {
  const std::string directory = NewDirectory();
  EXPECT_EQ(FindIdentity(*files_, directory), std::nullopt);
  ASSERT_TRUE(files_->CreateDirectories(directory).ok());
  for (const char* contents : {"", "job_id x\nserver_index 1\nserver_count 2\n", "job_id 7"}) {
    ASSERT_TRUE(
        WriteFileAtomically(*files_, absl::StrCat(directory, "/server-1.place"), contents).ok());
    EXPECT_EQ(FindIdentity(*files_, directory), std::nullopt) << contents;
  }
}

}  // namespace
}  // namespace torchps
