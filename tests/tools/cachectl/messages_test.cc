// What cachectl says when it fails: who is to blame, and what helps.
#include "tools/cachectl/messages.h"

#include <gtest/gtest.h>

#include "tools/cachectl/prompt.h"

namespace kv::cachectl {
namespace {

std::string said(const Error& error) {
  CommandLine line;
  line.dir = "/d";
  return service_message(line, error);
}

TEST(Messages, AskForTheDiskOfAServiceThatLostIt) {
  EXPECT_EQ(said({ErrorCode::unavailable, "the disk could not make its blocks durable", "disk"}),
            "ipc:///d/service.sock: the disk could not make its blocks durable (disk); look at the "
            "service's log, and at /d/disk");
}

TEST(Messages, SayThatEpochsOnlyRise) {
  EXPECT_EQ(said({ErrorCode::stale, "the namespace has a newer epoch already", "epoch"}),
            "ipc:///d/service.sock: the namespace has a newer epoch already (epoch); epochs only "
            "rise: give a higher one, or 0 for the next");
}

TEST(Messages, NameTheKeyThatAllowsMoreClients) {
  EXPECT_EQ(said({ErrorCode::exhausted, "as many clients as client.capacity", "client.capacity"}),
            "ipc:///d/service.sock: as many clients as client.capacity (client.capacity); try "
            "again later, or raise client.capacity of the service");
}

TEST(Messages, AskForARunnerWhereNoneEverCame) {
  EXPECT_EQ(said({ErrorCode::unavailable, "no pool is attached yet", {}}),
            "ipc:///d/service.sock: no pool is attached yet; let a model runner connect to it "
            "first");
}

TEST(Messages, OfALostServiceAreOneSentence) {
  EXPECT_EQ(said({ErrorCode::stale, "service restarted: attach again", {}}),
            "the service on ipc:///d/service.sock restarted meanwhile; run this again");
}

TEST(Messages, OfADamagedModelAskForTheFile) {
  CommandLine line;
  line.model = "m";
  EXPECT_EQ(prompt_message(line, {ErrorCode::corrupt, "model file: a weight is no number", {}}),
            "--model m: model file: a weight is no number; get the file anew");
  EXPECT_EQ(prompt_message(line, {ErrorCode::not_found, "model folder: cannot be read", {}}),
            "--model m: model folder: cannot be read; check the path");
}

}  // namespace
}  // namespace kv::cachectl
