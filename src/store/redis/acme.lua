-- What a fleet shares of its certificates: values, each a string of its own, and a lock.

local key, operation = KEYS[1], ARGV[1]

-- The value: its length (-1: there is none), and its bytes as integers of four.
if operation == 'acme-get' then
  local text = redis.call('GET', key)
  if not text then return { now, -1 } end
  local reply, padded = { now, #text }, text .. string.rep('\0', -#text % 4)
  for at = 1, #padded, 4 do reply[#reply + 1] = struct.unpack('<I4', padded, at) end
  return reply
end

-- Sets the value, for so many ms (0: for ever); an empty one removes it.
if operation == 'acme-put' then
  if ARGV[2] == '' then
    redis.call('DEL', key)
  elseif ARGV[3] == '0' then
    redis.call('SET', key, ARGV[2])
  else
    redis.call('SET', key, ARGV[2], 'PX', ARGV[3])
  end
  return { now, 1 }
end

-- Takes the lock for so many ms, or for so many more. The reply says whether this one has it.
if operation == 'acme-lock' then
  local holder = redis.call('GET', key)
  if holder and holder ~= ARGV[2] then return { now, 0 } end
  redis.call('SET', key, ARGV[2], 'PX', ARGV[3])
  return { now, 1 }
end

-- Gives it back.
if redis.call('GET', key) == ARGV[2] then redis.call('DEL', key) end
return { now, 1 }
