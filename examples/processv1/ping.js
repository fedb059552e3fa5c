// A stitch in plain JavaScript: plays ping-pong with another one, then tells its group.
// Custom arguments: the id of the other, how many rounds.

const [peer, rounds] = process.argv.slice(process.argv.indexOf("--") + 1);
const group = process.argv.find((word) => word.startsWith("application=")).split("=")[1];

const say = (message) => process.stdout.write(JSON.stringify(message) + "\nend\n");
const log = (line) => say({ Command: "logs", Id: 0, Logs: [line] });

// Data may be lost, and the other may not be there yet: ask again until it answers.
let round = 1;
const ask = () => say({ Command: "data", Id: 0, Data: `ping ${round}`, DataChannel: "game", ToStitchInstanceId: peer });
const asking = setInterval(ask, 500);
ask();

const take = (message) => {
  if (message.ChannelName === "_heartbeat") {
    say({ Command: "sync", Id: message.Id });
  } else if (message.ChannelName === "_exit") {
    process.exit(message.Id);
  } else {
    say({ Command: "ack", Id: message.Id });
    if (message.Data === `pong ${round}`) {
      log(`${message.FromStitchInstanceId} answered ${message.Data}`);
      round += 1;
      if (round <= Number(rounds)) {
        ask();
      } else {
        clearInterval(asking);
        say({ Command: "data", Id: 0, Data: `played ${rounds}`, ToGroupName: group });
      }
    } else if (!message.Data.startsWith("pong ")) {
      log(`${message.FromStitchInstanceId} says ${message.Data}`);
    }
  }
};

let frame = [];
require("readline")
  .createInterface({ input: process.stdin })
  .on("line", (line) => {
    if (line.trim() !== "end") {
      frame.push(line);
    } else if (frame.length) {
      const message = JSON.parse(frame.join("\n"));
      frame = [];
      take(message);
    }
  })
  .on("close", () => process.exit(1));
