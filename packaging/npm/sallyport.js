#!/usr/bin/env node
// Starts the executable that npm installed for this platform, on the same
// standard streams, and ends as it ends.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const platform = `${process.platform}-${process.arch}`;
const suffix = process.platform === "win32" ? ".exe" : "";

let program;
try {
  program = require.resolve(`@sallyport/${platform}/bin/sallyport${suffix}`);
} catch {
  console.error(
    `sallyport: the package @sallyport/${platform} is missing. Install with optional dependencies ` +
      "(without --omit=optional), or see https://github.com/sallyport/sallyport/releases for other ways and platforms.",
  );
  process.exit(125);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
const signals = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"];
for (const signal of signals) {
  process.on(signal, () => {
    // A terminal sends Ctrl-C and Ctrl-\ to the child as well.
    if (!(process.stdin.isTTY && (signal === "SIGINT" || signal === "SIGQUIT"))) child.kill(signal);
  });
}
child.on("error", (error) => {
  console.error(`sallyport: ${program} cannot be started: ${error.message}`);
  process.exit(125);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  for (const name of signals) process.removeAllListeners(name);
  process.kill(process.pid, signal);
  // Where the signal does not end this process.
  setTimeout(() => process.exit(128 + constants.signals[signal]), 1000);
});
