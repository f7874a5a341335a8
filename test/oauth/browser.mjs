// Plays the user in a real browser: signs in at an address of the authorization
// server, consents, and waits for the page to which the browser returns. Prints its
// address and text as JSON.
//
//     node browser.mjs [OPTIONS] ADDRESS
//
// OPTIONS is JSON: user, the name to sign in with ("alice"); deny, to refuse;
// screenshot, a file for a picture of the last page; alone, on a machine where nothing
// listens at the last address; output, a file for what is printed.
import { renameSync, writeFileSync } from "node:fs";
import { load } from "./load.mjs";

const { chromium } = (await load("playwright-core")).default;

const address = process.argv.at(-1);
const options = { user: "alice", ...(process.argv.length > 3 ? JSON.parse(process.argv[2]) : {}) };
const back = new URL(new URL(address).searchParams.get("redirect_uri"));
const isBack = (url) => url.origin === back.origin && url.pathname === back.pathname;

const browser = await chromium.launch({
  executablePath: process.env.SALLYPORT_TEST_CHROMIUM ?? "/usr/bin/chromium",
  // Chromium's own sandbox refuses root.
  args: process.getuid() === 0 ? ["--no-sandbox"] : [],
});
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  // Also a request that nobody answers, and one in place of the first page.
  let arrived;
  const returned = new Promise((resolve) => (arrived = resolve));
  page.on("request", (request) => isBack(new URL(request.url())) && arrived(request.url()));
  const press = (form) => page.locator(`form#${form} button`).click();
  let consent;
  const play = async () => {
    await page.goto(address);
    await page.getByLabel("Name").fill(options.user);
    await press("login");
    await page.getByRole("heading", { name: "Consent" }).waitFor();
    consent = await page.locator("p").innerText();
    await press(options.deny ? "abort" : "consent");
    await returned;
  };
  await Promise.race([play(), returned]);
  const url = await returned;
  if (!options.alone) await page.waitForURL(isBack, { waitUntil: "load" });
  if (options.screenshot) await page.screenshot({ path: options.screenshot });
  const seen = JSON.stringify({ url, consent, title: await page.title(), text: await page.locator("body").innerText() });
  if (options.output) {
    writeFileSync(`${options.output}.new`, seen);
    renameSync(`${options.output}.new`, options.output);
  }
  console.log(seen);
} finally {
  await browser.close();
}
