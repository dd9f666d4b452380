#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/tools/testing.h"
#include "torchps/tools/run/run_report.h"

namespace torchps {
namespace {

TEST(DescribeRunTest, DescribesCustomModulesAndWorkersOfSeveralProcesses) {
  JobSpec job = FromTestdata<JobStatus>("job_status.textproto").job();
  job.clear_model();
  LaunchOptions launch;
  launch.worker_binary = "/somewhere/my_worker";
  launch.threads = 2;
  Hosts hosts;
  hosts.servers.resize(2);
  hosts.workers.resize(3);
  for (Place& worker : hosts.workers) worker.stages.resize(2);

  const std::vector<std::string> lines = DescribeRun(job, launch, hosts, {"a:1", "b:2"});
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].find(job.name() + ": my_worker, "), 0u) << lines[0];
  EXPECT_EQ(lines[1], "2 servers, 3 workers with 2 stages each with 2 threads each");
  EXPECT_EQ(lines[2], "watch it: psctl status --watch --servers=a:1,b:2");
  EXPECT_EQ(lines[3], "");
}

}  // namespace
}  // namespace torchps
