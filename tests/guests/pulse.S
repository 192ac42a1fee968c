# A guest of one sector for tests of a machine's life.
#
# It counts its boots in the second sector of its disk, says so on the serial port, and then
# says a dot about once a second. The power button switches it off; so does an `x` on the
# serial port. A disk that fails is reported as well.
#
#   as --32 pulse.S -o pulse.o && ld -m elf_i386 -Ttext 0x7c00 --oformat binary pulse.o -o pulse

    .code16
    .globl _start
    .set PORT, 0x3f8            # first serial port
    .set STATUS, 0x600          # ACPI's PM1 event block, as SeaBIOS places it
    .set ENABLE, 0x602
    .set CONTROL, 0x604
    .set BUFFER, 0x8000

_start:
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7000, %sp
    sti
    movb %dl, drive

    movw $STATUS, %dx           # forget an old press, then listen for new ones
    movw $0x0100, %ax
    outw %ax, %dx
    movw $ENABLE, %dx
    movw $0x0100, %ax
    outw %ax, %dx

    movb $0x42, %ah             # the boot counter is the first byte of the second sector
    call disk
    incb BUFFER
    movb $0x43, %ah
    call disk
    movw $booted, %si
    call say
    movb BUFFER, %al
    addb $'0', %al
    call put
    movw $newline, %si
    call say

beat:
    movb $0x43, %ah
    call disk
    movb $'.', %al
    call put
    movw 0x46c, %bx             # the BIOS' clock, 18 ticks a second
    addw $18, %bx
rest:
    movw $STATUS, %dx
    inw %dx, %ax
    testb $1, %ah
    jnz off
    movw $PORT+5, %dx
    inb %dx, %al
    testb $1, %al
    jz quiet
    movw $PORT, %dx
    inb %dx, %al
    cmpb $'x', %al
    je off
    call put                    # everything else is echoed
quiet:
    hlt
    movw 0x46c, %ax
    subw %bx, %ax
    js rest
    jmp beat

off:
    movw $bye, %si
    call say
    movw $CONTROL, %dx
    movw $0x2000, %ax
    outw %ax, %dx
    hlt

disk:                           # %ah: 0x42 to read, 0x43 to write
    movw $packet, %si
    movb drive, %dl
    xorb %al, %al
    int $0x13
    jnc 1f
    movw $failed, %si
    call say
1:  ret

say:
    lodsb
    testb %al, %al
    jz 1f
    call put
    jmp say
1:  ret

put:
    pushw %dx
    pushw %ax
    movw $PORT+5, %dx
1:  inb %dx, %al
    testb $0x20, %al
    jz 1b
    popw %ax
    movw $PORT, %dx
    outb %al, %dx
    popw %dx
    ret

booted:  .asciz "boot "
newline: .asciz "\r\n"
bye:     .asciz "\r\nbye\r\n"
failed:  .asciz "disk failed\r\n"
drive:   .byte 0
    .balign 4
packet:  .byte 16, 0
    .word 1, BUFFER, 0
    .quad 1

    .org 510
    .word 0xaa55
