// Turns a picture file into the value of a tensor.

import {base64} from "/console/static/tensors.js";

// The longest side, in pixels, of a picture whose size the model leaves open.
const LONGEST_SIDE = 512;
export const SCALES = {
  "0 to 1": (value) => value / 255,
  "-1 to 1": (value) => value / 127.5 - 1,
  "0 to 255": (value) => value,
};

// Draws a picture file on a canvas in the size that a model asks for. Throws an error if the file
// is not a picture.
export async function draw(name, file, picture, canvas) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${name}: asked for a picture, found ${file.name} (${file.type || "no type"}, ` +
      `${file.size} bytes), which is none. Select a PNG, JPEG, GIF or WebP file.`);
  }
  const shrink = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  canvas.width = picture.width ?? Math.max(1, Math.round(bitmap.width * shrink));
  canvas.height = picture.height ?? Math.max(1, Math.round(bitmap.height * shrink));
  const context = canvas.getContext("2d", {willReadFrequently: true});
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
}

// Returns the pixels of a canvas as JSON text, without the batch dimension.
export function readPixels(canvas, picture, isFloat, scaleName) {
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const scale = isFloat ? SCALES[scaleName] : SCALES["0 to 255"];
  const format = isFloat ? (value) => Number(scale(value).toFixed(6)) : (value) => Math.round(value);
  const pixels = [];
  for (let index = 0; index < data.length; index += 4) {
    const [red, green, blue] = data.subarray(index, index + 3);
    if (picture.channels === 3) {
      pixels.push(`[${format(red)},${format(green)},${format(blue)}]`);
    } else {
      const grey = format(0.299 * red + 0.587 * green + 0.114 * blue);
      pixels.push(picture.channels === 1 ? `[${grey}]` : `${grey}`);
    }
  }
  if (picture.is_flat) return `[${pixels.join(",")}]`;
  const rows = [];
  for (let row = 0; row < canvas.height; row++) {
    rows.push(`[${pixels.slice(row * canvas.width, (row + 1) * canvas.width).join(",")}]`);
  }
  return `[${rows.join(",")}]`;
}

// Returns the bytes of a file as JSON text: {"b64": "..."}, which stands for a string of a tensor.
export async function readBytes(file) {
  return JSON.stringify({b64: base64(new Uint8Array(await file.arrayBuffer()))});
}
