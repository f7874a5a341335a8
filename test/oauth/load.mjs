// Loads packages of SALLYPORT_TEST_NPM, the node_modules folder of scripts/setup.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.SALLYPORT_TEST_NPM + "/");

export const load = (name) => import(pathToFileURL(require.resolve(name)).href);
