#include "torchps/tools/run_plan/hosts_file.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <vector>

#include "tests/tools/testing.h"
#include "torchps/common/process/file_descriptor.h"
#include "torchps/common/types.h"

namespace torchps {
namespace {

TEST(HostsFileTest, KeepsTheOrderOfServersAndWorkers) {
  const auto hosts = ParseHosts(
      "# two machines\n"
      "server alpha:4711\n"
      "server beta        # a free port\r\n"
      "\n\tworker beta slots=2\n"
      "worker alpha");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  ASSERT_EQ(hosts->servers.size(), 2u);
  EXPECT_EQ(hosts->servers[0].host, "alpha");
  EXPECT_EQ(hosts->servers[0].port, 4711);
  EXPECT_EQ(hosts->servers[1].host, "beta");
  EXPECT_EQ(hosts->servers[1].port, 0);
  ASSERT_EQ(hosts->workers.size(), 3u);
  EXPECT_EQ(hosts->workers[0].host, "beta");
  EXPECT_EQ(hosts->workers[1].host, "beta");
  EXPECT_EQ(hosts->workers[2].host, "alpha");
}

TEST(HostsFileTest, AcceptsIpv6AddressesWithAPort) {
  const auto hosts = ParseHosts("server [fd00::1]:4711\nserver fd00::2\nworker alpha\n");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ(hosts->servers[0].host, "[fd00::1]");
  EXPECT_EQ(hosts->servers[0].port, 4711);
  EXPECT_EQ(hosts->servers[1].host, "fd00::2");
  EXPECT_EQ(hosts->servers[1].port, 0);
}

TEST(HostsFileTest, ReadsFilesOfAnyEditor) {
  for (const char* text : {"\xEF\xBB\xBFserver alpha:4711\r\nworker\tbeta\t slots=2\t# two\r\n",
                           "server alpha:4711\rworker beta slots=2\r",
                           "\xEF\xBB\xBF# none\nserver alpha:4711\n\t\n"
                           "worker beta slots=2"}) {
    const auto hosts = ParseHosts(text);
    ASSERT_TRUE(hosts.ok()) << hosts.status();
    EXPECT_EQ(hosts->servers[0].host, "alpha");
    EXPECT_EQ(hosts->servers[0].port, 4711);
    ASSERT_EQ(hosts->workers.size(), 2u);
    EXPECT_EQ(hosts->workers[1].host, "beta");
  }
  EXPECT_EQ(ParseHosts("server a\r\nworker b\r\nworkr c\r\n").status().message().substr(0, 16),
            "line 3: 'workr' ");
  EXPECT_EQ(ParseHosts(absl::string_view("\xFF\xFEs\0e\0", 6)).status().message(),
            "it is not plain text, because it contains NUL bytes; save it as UTF-8");
}

// Listens like a stage process if `reuse` is true, otherwise like another program.
bool CanListen(int port, bool reuse) {
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  if (reuse) setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
         listen(listener.get(), 1) == 0;
}

TEST(HostsFileTest, ReservesStagePortsDuringTheRun) {
  auto hosts = std::make_unique<Hosts>();
  hosts->workers.resize(2);
  ASSERT_TRUE(SplitIntoStages(2, hosts.get()).ok());
  std::vector<int> ports;
  for (const Place& worker : hosts->workers) {
    ASSERT_EQ(worker.stages.size(), 2u);
    for (const Place& stage : worker.stages) ports.push_back(stage.port);
  }
  auto copy = std::make_unique<Hosts>(*hosts);
  hosts.reset();
  for (const int port : ports) {
    EXPECT_FALSE(CanListen(port, /*reuse=*/false)) << port;
    // The stage process can listen, and so can the process that replaces it after a restart.
    EXPECT_TRUE(CanListen(port, /*reuse=*/true)) << port;
    EXPECT_TRUE(CanListen(port, /*reuse=*/true)) << port;
  }
}

struct BadFile {
  const char* text;
  const char* message;
};

TEST(HostsFileTest, ErrorsNameTheLine) {
  const BadFile kBad[] = {
      {"worker a\nservr b\n",
       "line 2: 'servr' is not a part of a cluster; expected 'server HOST[:PORT]', 'worker HOST "
       "[slots=N | gpus=0,1]' or 'worker HOST:PORT,HOST:PORT [gpus=0,1]'"},
      {"server\n", "line 1: expected a host after 'server'"},
      {"worker -oProxyCommand=boom\n", "line 1: expected a host after 'worker'"},
      {"server a:0\n", "line 1: port '0': expected a number from 1 to 65535"},
      {"server a:http\n", "line 1: port 'http': expected a number from 1 to 65535"},
      {"server :4711\n", "line 1: expected a host before the port"},
      {"server root@a:4711\n",
       "line 1: 'root@a': workers reach the server by this name, so it must not contain a user; "
       "--ssh='ssh -o BatchMode=yes -l USER' sets the user"},
      {"server a 4711\n", "line 1: '4711' after the server's address is not expected"},
      {"worker a slots=0\n",
       "line 1: 'slots=0': expected slots=N with N from 1 to 4096, or "
       "gpus=0,1 with the numbers of GPUs, each once"},
      {"worker a 2\n",
       "line 1: '2': expected slots=N with N from 1 to 4096, or "
       "gpus=0,1 with the numbers of GPUs, each once"},
      {"worker a\n", "no server; expected a line 'server HOST[:PORT]'"},
      {"server a\n", "no worker; expected a line 'worker HOST [slots=N]'"},
      {"server a:1\nserver a:1\nworker a\n", "two servers would listen on a:1"},
      {"server localhost\nworker b\n",
       "the server on localhost cannot be reached by the worker on b; give the server the name "
       "that other machines know it by"},
  };
  for (const BadFile& bad : kBad) {
    const absl::Status status = ParseHosts(bad.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.text;
    EXPECT_EQ(status.message(), bad.message);
  }
}

// Returns the host and devices of each worker, like "alpha cuda:0,cuda:1".
std::vector<std::string> GetPlaces(const Hosts& hosts) {
  std::vector<std::string> places;
  for (const Place& worker : hosts.workers) places.push_back(worker.host + " " + worker.device);
  return places;
}

TEST(HostsFileTest, AcceptsGpusOfAWorker) {
  const auto hosts = ParseHosts("server alpha\nworker alpha gpus=0,3\nworker beta slots=2\n");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ(GetPlaces(*hosts), (std::vector<std::string>{"alpha cuda:0,cuda:3", "beta ", "beta "}));
  for (const char* wrong : {"gpus=", "gpus=0,", "gpus=0,0", "gpus=cuda:0", "gpus=64", "gpus=-1",
                            "gpus=0 slots=2", "slots=2 gpus=0"}) {
    EXPECT_FALSE(ParseHosts(std::string("server a\nworker a ") + wrong + "\n").ok()) << wrong;
  }
}

TEST(HostsFileTest, AssignsEachMachinesGpusToConsecutiveWorkers) {
  const auto parse = [] { return *ParseHosts("server alpha\nworker alpha\nworker beta\n"); };
  Hosts hosts = parse();
  ASSERT_TRUE(SpreadGpus(/*gpus=*/4, /*per_worker=*/4, &hosts).ok());
  EXPECT_EQ(GetPlaces(hosts), (std::vector<std::string>{"alpha cuda:0,cuda:1,cuda:2,cuda:3",
                                                        "beta cuda:0,cuda:1,cuda:2,cuda:3"}));
  hosts = parse();
  ASSERT_TRUE(SpreadGpus(4, 2, &hosts).ok());
  EXPECT_EQ(GetPlaces(hosts),
            (std::vector<std::string>{"alpha cuda:0,cuda:1", "alpha cuda:2,cuda:3",
                                      "beta cuda:0,cuda:1", "beta cuda:2,cuda:3"}));
  EXPECT_EQ(hosts.servers.size(), 1u);
  hosts = parse();
  ASSERT_TRUE(SpreadGpus(2, 1, &hosts).ok());
  EXPECT_EQ(GetPlaces(hosts),
            (std::vector<std::string>{"alpha cuda", "alpha cuda", "beta cuda", "beta cuda"}));

  hosts = parse();
  EXPECT_EQ(SpreadGpus(4, 3, &hosts).message(),
            "4 GPUs of a machine cannot be divided into groups of 3; expected --gpus to be a "
            "multiple of --gpus_per_worker");
  Hosts twice = *ParseHosts("server alpha\nworker alpha slots=2\n");
  EXPECT_EQ(SpreadGpus(2, 2, &twice).message(),
            "the hosts file has more than one worker on alpha; give each machine one line without "
            "slots=N");
  Hosts named = *ParseHosts("server alpha\nworker alpha gpus=1\n");
  EXPECT_EQ(SpreadGpus(2, 2, &named).message(),
            "the hosts file names the GPUs of alpha; leave out --gpus");
  Hosts many = *ParseHosts("server a\nworker a\nworker b\n");
  EXPECT_EQ(SpreadGpus(kMaxSlots, 1, &many).message(), "8192 workers; at most 4096 are possible");
  EXPECT_EQ(many.workers.size(), 2u);
}

TEST(HostsFileTest, ErrorNamesAMissingFile) {
  const absl::Status status = ReadHostsFile("/nowhere/hosts").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "cannot read the hosts file /nowhere/hosts: No such file or directory");
}

TEST(HostsFileTest, ErrorsNameTheFile) {
  const TestFolder folder;
  const std::string path = folder.WriteFile("hosts", "server\n");
  EXPECT_EQ(ReadHostsFile(path).status().message(),
            path + ": line 1: expected a host after 'server'");
}

TEST(HostsFileTest, AcceptsAProcessForEachStage) {
  const auto hosts = ParseHosts("server alpha\nworker beta:7001,gamma:7002\nworker beta\n");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  ASSERT_EQ(hosts->workers.size(), 2u);
  EXPECT_EQ(hosts->workers[0].host, "beta");
  EXPECT_EQ(StageAddresses(hosts->workers[0]),
            (std::vector<std::string>{"beta:7001", "gamma:7002"}));
  EXPECT_TRUE(hosts->workers[1].stages.empty());

  const auto complaint = [](const std::string& text) {
    return std::string(ParseHosts(text).status().message());
  };
  EXPECT_EQ(complaint("server a\nworker b:1,c\n"),
            "line 2: 'c': expected HOST:PORT for each stage of the model, each once");
  EXPECT_EQ(complaint("server a\nworker b:1,b:1\n"),
            "line 2: 'b:1': expected HOST:PORT for each stage of the model, each once");
  EXPECT_EQ(complaint("server a\nworker b:1,c:2 slots=2\n"),
            "line 2: 'slots=2' after the addresses of a model's stages: expected gpus=0,1 with the "
            "numbers of GPUs, each once, for the processes of a machine in turn");
  EXPECT_EQ(complaint("server a\nworker b:1,c:2\nworker c:2,d:3\n"),
            "two stages would listen on c:2");
  EXPECT_EQ(complaint("server localhost\nworker localhost:1,c:2\n"),
            "the server on localhost cannot be reached by the worker on c; give the server the "
            "name that other machines know it by");
}

// Returns the numbers of all processes, worker after worker.
std::vector<int> GetNumbers(const std::string& lines) {
  absl::StatusOr<Hosts> hosts = ParseHosts("server alpha\n" + lines);
  EXPECT_TRUE(hosts.ok()) << hosts.status();
  NumberProcesses(&*hosts);
  std::vector<int> numbers;
  for (const Place& worker : hosts->workers) {
    if (worker.stages.empty()) numbers.push_back(worker.gpu_number);
    for (const Place& stage : worker.stages) numbers.push_back(stage.gpu_number);
  }
  return numbers;
}

TEST(HostsFileTest, ProcessNumbersAreUniqueOnEachMachine) {
  using Numbers = std::vector<int>;
  EXPECT_EQ(GetNumbers("worker beta slots=2\nworker gamma\nworker beta\n"), (Numbers{0, 1, 0, 2}));
  // Numbering by slot and stage alone would assign number 1 twice on beta.
  EXPECT_EQ(GetNumbers("worker beta:1,beta:2,gamma:1\nworker beta:3,gamma:2,gamma:3\n"),
            (Numbers{0, 1, 0, 2, 1, 2}));
  EXPECT_EQ(GetNumbers("worker beta:1,gamma:1\nworker beta\n"), (Numbers{0, 0, 1}));
}

TEST(HostsFileTest, NumberingSkipsGpusNamedExplicitly) {
  using Numbers = std::vector<int>;
  EXPECT_EQ(GetNumbers("worker beta gpus=0,2\nworker beta slots=2\nworker gamma\n"),
            (Numbers{-1, 1, 3, 0}));
  EXPECT_EQ(GetNumbers("worker beta:1,gamma:1\nworker beta:2,gamma:2 gpus=0\n"),
            (Numbers{1, 1, -1, -1}));
}

TEST(HostsFileTest, StageProcessesUseTheGpusOfTheirLine) {
  const auto devices = [](const std::string& line) {
    const auto hosts = ParseHosts("server alpha\n" + line + "\n");
    EXPECT_TRUE(hosts.ok()) << hosts.status();
    std::vector<std::string> found;
    for (const Place& stage : hosts->workers[0].stages) found.push_back(stage.device);
    return found;
  };
  EXPECT_EQ(devices("worker beta:1,beta:2"), (std::vector<std::string>{"", ""}));
  EXPECT_EQ(devices("worker beta:1,beta:2 gpus=2,3"),
            (std::vector<std::string>{"cuda:2", "cuda:3"}));
  EXPECT_EQ(devices("worker beta:1,beta:2,beta:3 gpus=0,1"),
            (std::vector<std::string>{"cuda:0", "cuda:1", "cuda:0"}))
      << "with more processes than GPUs, the numbering wraps around";
  EXPECT_EQ(devices("worker beta:1,gamma:1,beta:2,gamma:2 gpus=0,1"),
            (std::vector<std::string>{"cuda:0", "cuda:0", "cuda:1", "cuda:1"}))
      << "GPUs are numbered on each machine";
  for (const char* wrong : {"gpus=", "gpus=0,0", "gpus=64", "gpus=0 gpus=1"}) {
    EXPECT_FALSE(ParseHosts(std::string("server a\nworker b:1,b:2 ") + wrong + "\n").ok()) << wrong;
  }
  Hosts hosts = *ParseHosts("server a\nworker b:1,b:2\n");
  EXPECT_EQ(SpreadGpus(2, 2, &hosts).message(),
            "the hosts file has a worker of several processes on b; name their GPUs in its line, "
            "as gpus=0,1, and leave out --gpus");
}

}  // namespace
}  // namespace torchps
