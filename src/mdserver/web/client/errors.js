/** What the client raises. Each message is a sentence that says what would be right. */

/** The base of all errors of the client. */
export class ClientError extends Error {
  // Written out, since names of classes get lost when scripts are made small.
  name = "ClientError";
}

/** An argument that no server could make sense of. */
export class ArgumentError extends ClientError {
  name = "ArgumentError";
}

/** A subject or pattern that breaks the rules. */
export class InvalidSubjectError extends ArgumentError {
  name = "InvalidSubjectError";
}

/** A call that this client cannot answer any more, or not yet. */
export class NotOpenError extends ClientError {
  name = "NotOpenError";
}

/** No server was reached in time; the client goes on trying. */
export class ConnectError extends ClientError {
  name = "ConnectError";
}

/** Something that was waited for did not come in time. */
export class TimeoutError extends ClientError {
  name = "TimeoutError";
}

/** A subscription that the server refused. */
export class SubscribeError extends ClientError {
  name = "SubscribeError";

  /**
   * @param {string[]} subjects
   * @param {string} reason
   */
  constructor(subjects, reason) {
    super(`${subjects.join(", ")}: ${reason}`);
    this.subjects = subjects;
    this.reason = reason;
  }
}

/** A publication that was not taken, or of which nobody knows (`result.certain` is false). */
export class PublishError extends ClientError {
  name = "PublishError";

  /** @param {import("./core/publications.js").PublishResult} result */
  constructor(result) {
    super(result.reason ?? result.status);
    this.result = result;
  }
}

/** No server wants this client; it does not come back by itself. */
export class StoppedError extends ClientError {
  name = "StoppedError";

  /**
   * @param {number} code a close code of the protocol
   * @param {string} reason
   */
  constructor(code, reason) {
    super(`${reason} (${code})`);
    this.code = code;
    this.reason = reason;
  }
}

/** The server broke the protocol; `code` is the close code that says so. */
export class ProtocolError extends ClientError {
  name = "ProtocolError";

  /**
   * @param {string} reason
   * @param {number} [code]
   */
  constructor(reason, code = 4100) {
    super(reason);
    this.reason = reason;
    this.code = code;
  }
}
