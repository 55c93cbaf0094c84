/** Compressed content: the zlib format (RFC 1950) by the streams of the runtime. */

import { ClientError } from "./errors.js";

const INFLATED_BYTES_MAX = 8 * 1024 * 1024;

/** @typedef {import("./message.js").Message} Message */

/**
 * Return content as it is published with the option `compressed`.
 *
 * @param {string | Uint8Array} content
 */
export function deflated(content) {
  return throughStream(new CompressionStream("deflate"), content, Infinity);
}

/**
 * Return the content of a compressed message as it was published: text when it is UTF-8.
 *
 * Other messages give their content as it is.
 *
 * @param {Message} message
 * @returns {Promise<string | Uint8Array>}
 * @throws {ClientError} when it is not in the zlib format or has more than 8 MiB
 */
export async function inflated({ content, compressed }) {
  if (!compressed || typeof content === "string") return content;
  let bytes;
  try {
    const stream = new DecompressionStream("deflate");
    bytes = await throughStream(stream, content, INFLATED_BYTES_MAX);
  } catch (error) {
    throw new ClientError(`content that cannot be decompressed: ${/** @type {Error} */ (error).message}`);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return bytes;
  }
}

/**
 * @param {CompressionStream | DecompressionStream} stream
 * @param {string | Uint8Array} content
 * @param {number} bytesMax
 */
async function throughStream(stream, content, bytesMax) {
  const blob = new Blob([/** @type {BlobPart} */ (content)]);
  const reader = blob.stream().pipeThrough(stream).getReader();
  const parts = [];
  let bytes = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    bytes += part.value.length;
    if (bytes > bytesMax) {
      await reader.cancel();
      throw new ClientError(`it has more than ${bytesMax} bytes`);
    }
    parts.push(part.value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}
